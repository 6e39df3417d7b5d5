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

from scheduling.executors.ray.examining import examine
from scheduling.executors.ray.link import Connection, Link
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


class SayingLink(Link):
    """To a Ray of which each node says `reached`."""

    def __init__(self, place: Path, reached: dict[str, dict[str, Any]], gpus: dict[str, float]) -> None:
        super().__init__(place, Connection("127.0.0.2:1", "x"))
        self._answers: dict[str, Any] = {"version": {"ray": "2.60.0"}, "nodes": []}
        rest = {"at": 1.0, "asked_at": 0.0, "answered_at": 2.0, "uid": os.geteuid(), "python": "3.11.2"}
        rest |= {"evenkeel": "1", "interpreter": "/usr/bin/python3", "torch": True, "wrote": "nothing"}
        self._answers["probe"] = [
            {"name": name, "reached": said, "resources": {"GPU": gpus.get(name, 0.0)}} | rest
            for name, said in reached.items()
        ]

    def ask(self, call: str, *_: Any, **__: Any) -> Any:
        return self._answers[call]


READS = {"account": "evenkeel", "read": ["/d/secret_key"]}
REACH_NOTHING: dict[str, Any] = {"account": "evenkeel", "read": []}


def test_where_ray_places_no_jobs_it_is_a_warning(place: Path) -> None:
    link = SayingLink(place, {"head": READS, "gpu1": READS}, gpus={"gpu1": 1.0})
    head, gpu1 = (one for one in examine(link, place, "") if one.subject == "portal's files")
    assert (head.ok, head.warning) == (True, True)
    words = "can read /d/secret_key, by tasks that its program starts in Ray"
    assert head.seen == f"a job on head (as evenkeel) {words}"
    assert (gpu1.ok, gpu1.seen) == (False, "a job on gpu1 (as evenkeel) can read /d/secret_key")


def test_64_nodes_of_a_ray_that_say_the_same_share_their_lines(place: Path) -> None:
    names = [f"gpu{number}" for number in range(1, 65)]
    said = dict.fromkeys(names, REACH_NOTHING) | {"gpu3": READS, "gpu4": READS}
    found = list(examine(SayingLink(place, said, gpus=dict.fromkeys(names, 1.0)), place, ""))
    assert [one.seen for one in found if one.subject == "portal's files"] == [
        "a job on gpu[3-4] (as evenkeel) can read /d/secret_key"
    ]
    of_nodes = [one.subject for one in found if "gpu" in one.subject]
    assert "gpu[1-64]: clock" in of_nodes
    assert len(of_nodes) == len({one.partition(": ")[2] for one in of_nodes}), "one line of each kind"
    alike = SayingLink(place, dict.fromkeys(names, REACH_NOTHING), gpus=dict.fromkeys(names, 1.0))
    [files] = (one for one in examine(alike, place, "") if one.subject == "portal's files")
    assert (files.ok, files.seen) == (True, "no job on the nodes that were asked can reach them")


def test_a_certificate_that_nodes_do_not_trust_is_no_wrong_address() -> None:
    untrusted = "<urlopen error [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate>"
    assert "update-ca-certificates" in portal_fix(["", untrusted])
    assert portal_fix(["timed out"]).startswith("set EVENKEEL_API_URL")
