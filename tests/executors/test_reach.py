"""What a job on a node finds of what the portal keeps for itself, and what doctor says of it."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from evenkeel.runner.reaching import account, reached

from scheduling.executors.ray.examining import of_node
from scheduling.executors.reach import portal_fix, reach_finding

MEMBER = 2_000_003


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="reach-", dir="/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def kept(place: Path) -> dict[str, Any]:
    key, program, other = place / "secret_key", place / "manage.py", place / "elsewhere.py"
    for path in (key, program, other):
        path.write_text("x")
        path.chmod(0o600)
    which = program.stat()
    return {
        "files": [str(key), str(place / "encryption_keys")],
        "sockets": [str(place / "socket"), str(place / "nothing")],
        "programs": [
            [str(program), which.st_ino, which.st_mtime_ns],
            [str(other), which.st_ino, which.st_mtime_ns],  # the node's own, of the same name
            [str(place / "portal"), 1, 1],
        ],
    }


def test_what_is_the_accounts_own_is_reached(place: Path) -> None:
    wanted = kept(place)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(place / "socket"))
        server.listen()
        assert reached(wanted) == {
            "account": account(),
            "read": [str(place / "secret_key")],
            "connect to": [str(place / "socket")],
            "change": [str(place / "manage.py")],
        }
    assert reached(wanted)["connect to"] == [], "nobody listens: the socket's server is on another host"
    assert reached({}) == {"account": account(), "read": [], "connect to": [], "change": []}


@pytest.mark.skipif(os.geteuid() != 0, reason="accounts of their own need root")
def test_what_is_anothers_is_not(place: Path) -> None:
    wanted = kept(place)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(place / "socket"))
        (place / "socket").chmod(0o700)
        server.listen()
        os.seteuid(MEMBER)
        try:
            found = reached(wanted)
        finally:
            os.seteuid(0)
    assert found == {"account": f"account {MEMBER}", "read": [], "connect to": [], "change": []}


def test_doctor_says_in_plain_words_what_a_job_can_do() -> None:
    said = {"account": "evenkeel", "read": ["/d/secret_key", "/d/postgres_password"], "connect to": ["/d/s"]}
    found = reach_finding("gpu1", said | {"change": []})
    assert not found.ok
    assert found.seen == "a job on gpu1 (as evenkeel) can read /d/secret_key and 1 more, and connect to /d/s"
    assert "another host than the nodes" in found.fix
    well = reach_finding("gpu1", {"account": "evenkeel", "read": [], "connect to": [], "change": []})
    assert (well.ok, well.known, well.seen) == (True, True, "no job on gpu1 can reach them")
    unknown = reach_finding("gpu1", {"problem": "no module"})
    assert (unknown.ok, unknown.known) == (True, False)


def test_where_ray_places_no_jobs_it_is_a_warning(place: Path) -> None:
    said = {"name": "head", "at": 1.0, "asked_at": 0.0, "answered_at": 2.0, "resources": {}}
    said |= {"reached": {"account": "evenkeel", "read": ["/d/secret_key"]}}
    found = {one.subject: one for one in of_node(said, "nonce", place)}["node head: portal's files"]
    assert (found.ok, found.warning) == (True, True)
    assert found.seen.endswith("can read /d/secret_key, by tasks that its program starts in Ray")
    with_gpus = next(iter(one for one in of_node(said | {"resources": {"GPU": 1.0}}, "nonce", place) if not one.ok))
    assert with_gpus.subject == "node head: portal's files"
    assert with_gpus.seen.endswith("can read /d/secret_key")


def test_a_certificate_that_nodes_do_not_trust_is_no_wrong_address() -> None:
    untrusted = "<urlopen error [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate>"
    assert "update-ca-certificates" in portal_fix(["", untrusted])
    assert portal_fix(["timed out"]).startswith("set EVENKEEL_API_URL")
