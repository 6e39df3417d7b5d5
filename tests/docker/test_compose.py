import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "docker" / "compose.yaml"


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    return dict(yaml.safe_load(COMPOSE.read_text()))


def test_it_is_a_valid_compose_file(compose: dict[str, Any]) -> None:
    schema = json.loads((Path(__file__).parent / "compose-used.schema.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(compose)


def test_the_specifications_own_schema_accepts_it(compose: dict[str, Any]) -> None:
    place = os.environ.get("COMPOSE_SPEC_SCHEMA")
    if not place:
        pytest.skip("COMPOSE_SPEC_SCHEMA does not say where the specification's schema is (docs/operations.md)")
    validator = jsonschema.Draft7Validator(json.loads(Path(place).read_text()))
    validator.validate(compose)
    assert not validator.is_valid({**compose, "services": {"web": {"imagine": "nothing"}}})


def test_docker_itself_accepts_it() -> None:
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "compose", "version"], capture_output=True, check=False).returncode:
        pytest.skip("docker compose is not installed")
    names = ("EVENKEEL_DB_PASSWORD", "EVENKEEL_APP_PASSWORD", "EVENKEEL_REDIS_PASSWORD", "EVENKEEL_SECRET_KEY")
    env = {"PATH": "/usr/bin:/bin:/usr/local/bin", **dict.fromkeys(names, "example")}
    finished = subprocess.run(
        [docker, "compose", "-f", str(COMPOSE), "config", "--quiet"],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr


def test_every_lasting_service_has_a_health_check(compose: dict[str, Any]) -> None:
    services = dict(compose["services"])
    services.pop("setup")
    assert set(services) == {"postgres", "redis", "web", "worker", "commands", "forecasts", "lab", "shadow", "beat"}
    assert all(service["healthcheck"]["test"] for service in services.values())


def test_what_is_depended_on_and_mounted_exists(compose: dict[str, Any]) -> None:
    for service in compose["services"].values():
        assert set(service.get("depends_on", {})) <= set(compose["services"])
        mounted = {mount.split(":")[0] for mount in service.get("volumes", [])}
        files = {name for name in mounted if name.startswith("./")}
        assert mounted - files <= set(compose["volumes"])
        assert all((COMPOSE.parent / name).is_file() for name in files)


def test_no_password_is_written_down(compose: dict[str, Any]) -> None:
    for service in compose["services"].values():
        for name, value in service["environment"].items():
            if name in {"POSTGRES_PASSWORD", "EVENKEEL_APP_PASSWORD", "REDISCLI_AUTH", "EVENKEEL_SECRET_KEY"}:
                assert str(value).startswith("${")


def test_the_image_copies_what_exists_and_drops_root() -> None:
    lines = (ROOT / "docker" / "Dockerfile").read_text().splitlines()
    copied = [
        word for line in lines if line.startswith("COPY ") and "--from" not in line for word in line.split()[1:-1]
    ]
    assert [path for path in copied if not (ROOT / path).exists()] == []
    stages = [line.split()[-1] for line in lines if line.startswith("FROM ") and " AS " in line]
    assert stages == ["frontend", "packages"]
    assert "USER evenkeel" in lines
