"""A job of uploaded code, an environment of its own and a secret, over the API of a whole portal, to its artefact."""

from __future__ import annotations

import hashlib
import io
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.live_portal import LivePortal, running_portal
from tests.supervisor.running import overriding

pytestmark = [pytest.mark.whole, pytest.mark.timeout(400)]
VALUE = "correct-horse-battery"
PROGRAM = """
import os, sys
import evenkeel, six
value = os.environ["API_KEY"]
print("the key is", value, "and six is", six.__version__, flush=True)
with evenkeel.training() as run:
    for step in run.steps():
        pass
    (run.artifact_dir / "plots").mkdir(exist_ok=True)
    (run.artifact_dir / "plots" / "loss.csv").write_text("six," + six.__version__)
    (run.artifact_dir / "scratch.tmp").write_text("not wanted")
    assert open(os.path.join(os.environ["EVENKEEL_SECRETS_DIR"], "key")).read() == value
"""


@pytest.fixture(scope="module")
def live_portal() -> Iterator[LivePortal]:
    with running_portal(**overriding(EVENKEEL_MATERIAL={"git_allow_file": True})) as portal:
        yield portal


def bundle() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        info = tarfile.TarInfo("src/train.py")
        info.size = len(PROGRAM)
        tar.addfile(info, io.BytesIO(PROGRAM.encode()))
    return out.getvalue()


def prepared(api: httpx.Client) -> str:
    """The digest of the uploaded code, with the secret set."""
    data = bundle()
    headers = {"Content-Type": "application/gzip"}
    sent = api.post("projects/default/bundles", content=iter([data[:100], data[100:]]), headers=headers)
    assert sent.status_code in (200, 201), sent.text
    assert sent.json()["sha256"] == hashlib.sha256(data).hexdigest()
    api.put("projects/default/secrets/API_KEY", json={"value": VALUE}).raise_for_status()
    return str(sent.json()["sha256"])


def test_from_upload_to_artefact(live_portal: LivePortal) -> None:
    with live_portal.api() as api:
        digest = prepared(api)
        job = live_portal.submit(
            model_type=None,
            command="python train.py",
            total_steps=3,
            code={"bundle": digest, "subdir": "src"},
            environment={"requirements": "six==1.16.0"},
            secrets=[{"name": "API_KEY", "env": "API_KEY"}, {"name": "API_KEY", "file": "key"}],
            artifacts={"paths": ["*.csv"], "keep_days": 3},
        )
        number = job["number"]
        done = live_portal.wait_state(number, "succeeded", "failed", timeout_s=240)
        log = api.get(f"jobs/{number}/logs", headers={"Accept": "text/plain"}).text
        assert done["state"] == "succeeded", (done["reason"], log)
        assert "the key is [redacted] and six is 1.16.0" in log
        listed = live_portal.wait_for(
            "the artefacts", lambda: (a := api.get(f"jobs/{number}/artifacts").json()) and not a["collecting"] and a
        )
        assert [row["path"] for row in listed["results"]] == ["plots/loss.csv"]
        file = api.get(f"jobs/{number}/artifacts/{listed['results'][0]['id']}")
        assert (file.text, file.headers["Content-Disposition"][:10]) == ("six,1.16.0", "attachment")
        assert hashlib.sha256(file.content).hexdigest() == listed["results"][0]["sha256"]
        environment = api.get("projects/default/environments").json()["results"][0]
        built = api.get(f"projects/default/environments/{environment['digest']}/log").json()
        assert (environment["state"], built["complete"]) == ("ready", True)
        assert "six" in built["text"]
        said = "".join(api.get(path).text for path in (f"jobs/{number}", f"jobs/{number}/events", "audit"))
        assert VALUE not in said + log
    held = (
        "SELECT count(*) FROM jobs_run r JOIN jobs_jobevent e ON e.run_id = r.id JOIN jobs_job j ON j.id = r.job_id "
        f"WHERE j.number = {number} AND e.to_state = 'LAUNCHING'"
    )
    assert live_portal.rows(held) == [(1,)]
    stored = [p for p in (live_portal.data / "jobs" / job["id"]).rglob("*") if p.is_file() and not p.is_symlink()]
    assert not [p for p in stored if VALUE in p.read_text(errors="replace")]
    assert not [p for p in (live_portal.data / "logs").glob("*.log") if VALUE in p.read_text(errors="replace")]


def test_a_ref_becomes_the_commit_that_the_run_shows(live_portal: LivePortal) -> None:
    place = Path(tempfile.mkdtemp(prefix="evenkeel-git-"))
    place.chmod(0o755)
    git = ["git", "-C", str(place), "-c", "user.name=Ana", "-c", "user.email=ana@example.org"]
    try:
        (place / "go.py").write_text("print('from git')")
        for words in (["init", "-q", "-b", "main"], ["add", "go.py"], ["commit", "-q", "-m", "first"]):
            subprocess.run([*git, *words], check=True)
        commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
        code = {"git": f"file://{place}", "ref": "main"}
        number = live_portal.submit(model_type=None, command="python go.py", total_steps=1, code=code)["number"]
        job = live_portal.wait_state(number, "succeeded", "failed", timeout_s=120)
        assert job["state"] == "succeeded", job["reason"]
        assert job["runs"][0]["material"]["commit"] == commit
        with live_portal.api() as api:
            line, said = api.get(f"jobs/{number}/logs").json()["text"].splitlines()
            assert line.startswith("[evenkeel] emulated: 1 × titan_xp")
            assert said == "from git"
    finally:
        shutil.rmtree(place)


def test_requirements_that_do_not_exist_end_the_job_with_their_log(live_portal: LivePortal) -> None:
    number = live_portal.submit(
        model_type=None, command="true", total_steps=1, environment={"requirements": "six==99.99"}
    )["number"]
    job = live_portal.wait_state(number, "failed", timeout_s=120)
    assert (job["run"]["attempt"], job["run"]["epoch"]) == (1, 0)
    assert "environment cannot be built" in job["reason"]["text"]
    assert "six==99.99" in job["reason"]["text"]


def test_an_upload_that_is_too_large_is_cut_off(live_portal: LivePortal) -> None:
    headers = {"Content-Type": "application/json"}
    with live_portal.api() as api:
        answer = api.post("jobs", content=iter([b" " * (1 << 20)] * 6), headers=headers)
    assert answer.status_code == 413
    assert answer.headers["Content-Type"] == "application/problem+json"
