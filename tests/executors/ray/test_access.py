"""A cluster behind TLS and a token, and what `doctor` says of clusters."""

from __future__ import annotations

import datetime
import ipaddress
import os
import platform
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import evenkeel
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from scheduling.errors import ExecutorError
from scheduling.executors.base import Finding
from scheduling.executors.ray.deaths import explain
from scheduling.executors.ray.examining import examine, of_node
from scheduling.executors.ray.executor import RayExecutor
from scheduling.executors.ray.link import Connection, Link
from scripts.ray_cluster import HEAD, NodePlan, RayCluster
from tests.executors.contract import ended, reason, requests_for

ADDRESSES = (HEAD, "127.0.0.11", "127.0.0.1")


@pytest.fixture
def guarded(place: Path) -> Iterator[RayCluster]:
    pytest.importorskip("ray")
    token = place / "token"
    token.write_text("a" * 64)
    token.chmod(0o600)
    variables = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token), "RAY_USE_TLS": "1"}
    variables |= dict(
        zip(("RAY_TLS_SERVER_CERT", "RAY_TLS_SERVER_KEY", "RAY_TLS_CA_CERT"), _certificates(place), strict=True)
    )
    made = RayCluster([NodePlan("ray-1", "127.0.0.11", 1)], variables=variables)
    try:
        made.up()
        yield made
    finally:
        made.down()


@pytest.fixture
def entrance(guarded: RayCluster, place: Path) -> Iterator[Callable[..., RayExecutor]]:
    """Makes executors, each with a connection of its own, that are told all that is needed, but for what is given."""
    cert, key, ca = (guarded.variables[name] for name in _TLS)
    known = {"tls_cert": cert, "tls_key": key, "tls_ca": ca, "token_file": guarded.variables["RAY_AUTH_TOKEN_PATH"]}
    made: list[RayExecutor] = []

    def enter(**changes: str) -> RayExecutor:
        to, data = guarded.connection, place / f"data-{len(made)}"
        made.append(RayExecutor(data, to.address, node_address=HEAD, emulated=True, **known | changes))  # type: ignore[arg-type]
        return made[-1]

    with guarded.network.inside():
        yield enter
        for executor in made:
            executor.disconnect()


@pytest.mark.slow
def test_a_run_trains_to_its_end_behind_tls_and_token(entrance: Callable[..., RayExecutor], place: Path) -> None:
    executor = entrance()
    assert [node.name for node in executor.inventory()] == ["ray-1"]
    request = requests_for(executor, place)()
    executor.launch(request)
    fact = ended(executor, request.run_id)
    assert reason(fact) == "done"
    assert fact.exit
    assert (fact.exit.exit_code, fact.exit.step) == (0, 20)
    for changes in ({"token_file": ""}, {"tls_cert": "", "tls_key": "", "tls_ca": ""}):
        with pytest.raises(ExecutorError):
            entrance(**changes).inventory()
    another = place / "another"
    another.mkdir()
    cert, key, _ = _certificates(another)
    with pytest.raises(ExecutorError):
        entrance(tls_cert=cert, tls_key=key).inventory()  # nobody whom the cluster knows has signed it
    assert [node.name for node in executor.inventory()] == ["ray-1"]


_TLS = ("RAY_TLS_SERVER_CERT", "RAY_TLS_SERVER_KEY", "RAY_TLS_CA_CERT")


def _certificates(place: Path) -> list[str]:
    """One certificate that signs itself, for all addresses."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ray")])
    now = datetime.datetime.now(datetime.UTC)
    names = [x509.DNSName("localhost"), *(x509.IPAddress(ipaddress.ip_address(one)) for one in ADDRESSES)]
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    certificate = made.public_bytes(serialization.Encoding.PEM)
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    paths = [place / "cert.pem", place / "key.pem", place / "ca.pem"]
    for path, content in zip(paths, (certificate, secret, certificate), strict=True):
        path.write_bytes(content)
        path.chmod(0o600)
    return [str(path) for path in paths]


# What doctor says


@pytest.mark.slow
def test_doctor_examines_every_node(executor: RayExecutor) -> None:
    found = {finding.subject: finding for finding in executor.examine("http://127.0.0.1:9")}
    assert found["GPUs"].seen == "ray-[1-2] 4 × titan_xp"
    wrong = {subject for subject, finding in found.items() if not finding.ok}
    assert wrong == {"ray-[1-2]: portal"}  # nobody listens there
    assert all(found[subject].fix for subject in wrong)
    assert found["ray-[1-2]: shared storage"].seen.endswith("seen from both sides")
    assert found["ray-[1-2]: data by URL"].seen.startswith("file://")


def test_doctor_names_what_keeps_it_from_connecting(place: Path) -> None:
    token = place / "token"
    token.write_text("x")
    token.chmod(0o644)
    link = Link(place, Connection("127.0.0.2:1", "x", token_file=str(token)))
    link.ask = _refuse  # type: ignore[method-assign]
    secrets, connection = examine(link, place, "http://127.0.0.1:9")
    assert (secrets.ok, secrets.fix) == (False, f"chmod 600 {token}")
    assert (connection.ok, connection.seen) == (False, "no way")
    assert "EVENKEEL_RAY_ADDRESS" in connection.fix


def _refuse(*_: Any, **__: Any) -> Any:
    raise ExecutorError("no way", permanent=False)


@pytest.mark.parametrize(
    ("change", "subject"),
    [
        ({"at": time.time() + 3600}, "clock"),
        ({"uid": os.geteuid() + 1}, "account"),
        ({"python": "2.7.18"}, "versions"),
        ({"evenkeel": "0.0.1"}, "versions"),
        ({"torch": False}, "PyTorch"),
        ({"shared": "another"}, "shared storage"),
        ({"shared_error": "PermissionError: no", "shared": None}, "shared storage"),
        ({"portal_error": "refused"}, "portal"),
    ],
)
def test_doctor_tells_what_is_wrong_with_a_node(tmp_path: Path, change: dict[str, Any], subject: str) -> None:
    (tmp_path / "nonce.node.1").touch()
    now = time.time()
    said = {
        "name": "a",
        "resources": {"GPU": 1},
        "at": now,
        "asked_at": now - 1,
        "answered_at": now + 1,
        "uid": os.geteuid(),
        "python": platform.python_version(),
        "evenkeel": evenkeel.__version__,
        "interpreter": "/usr/bin/python3",
        "torch": True,
        "shared": "nonce",
        "wrote": "nonce.node.1",
    }
    assert _wrong(of_node(said, "nonce", tmp_path)) == []
    [finding] = _wrong(of_node(said | change, "nonce", tmp_path))
    assert finding.subject == subject
    assert finding.fix


def test_doctor_tells_what_a_node_says_of_its_devices(tmp_path: Path) -> None:
    row = {"subject": "memory errors", "ok": False, "seen": "GPU-1: 3 uncorrected", "fix": "reset", "known": True}
    now = time.time()
    said = {"name": "a", "resources": {"GPU": 1}, "at": now, "asked_at": now, "answered_at": now, "uid": os.geteuid()}
    said |= {"python": platform.python_version(), "evenkeel": evenkeel.__version__, "interpreter": "/usr/bin/python3"}
    said |= {"torch": True, "shared": "nonce", "wrote": "nonce.node.1", "devices": [row]}
    (tmp_path / "nonce.node.1").touch()
    assert _wrong(of_node(said, "nonce", tmp_path)) == [
        Finding("memory errors", False, "GPU-1: 3 uncorrected", "reset")
    ]


def _wrong(findings: Iterator[Finding]) -> list[Finding]:
    return [finding for finding in findings if not finding.ok]


# Why actors die


def test_causes_of_death_are_told_apart() -> None:
    gcs = pytest.importorskip("ray.core.generated.common_pb2")
    died = gcs.ActorDeathCause()
    died.actor_died_error_context.error_message = (
        "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit detail:"
        " Worker unexpectedly exits with a connection error code 2. End of file. There are some potential root causes."
        " (1) The process is killed by SIGKILL by OOM killer due to high memory usage. (2) ray stop --force is called."
    )
    assert explain(died)[0] == "process"
    scarce = gcs.ActorDeathCause()
    scarce.oom_context.error_message = "Task was killed due to the node running low on memory."
    assert explain(scarce)[0] == "memory"
    unplaced = gcs.ActorDeathCause()
    unplaced.actor_unschedulable_context.error_message = "its placement group was removed"
    assert explain(unplaced)[0] == "unplaced"
    assert explain(gcs.ActorDeathCause()) == ("process", "")
