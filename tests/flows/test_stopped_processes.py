"""A project that stops all of its own processes delays no other, and its GPUs are free soon after a cancel."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from evenkeel.runner.processes import all_processes, real_uid

from tests.live_portal import LivePortal, running_portal

pytestmark = [
    pytest.mark.whole,
    pytest.mark.timeout(600),
    pytest.mark.skipif(os.geteuid() != 0, reason="projects have accounts of their own as root only"),
]

#: Never waited for unless something is broken.
HANGS_S = 120
#: What others may cost the start of a project's job, beside several times what it took without them just before: the
#: machine may be busier by now.
STARTS_WITHIN_S, BUSIER = 10.0, 3.0


@contextmanager
def everything_stopped(uid: int) -> Iterator[None]:
    """Inside, each process of the account is stopped as soon as it is seen, as its jobs may do."""
    leave = threading.Event()

    def stop() -> None:
        while not leave.is_set():
            for process in all_processes():
                if process.state in "RSD" and real_uid(process.pid) == uid:
                    os.kill(process.pid, signal.SIGSTOP)
            leave.wait(0.02)

    thread = threading.Thread(target=stop, daemon=True)
    thread.start()
    try:
        yield
    finally:
        leave.set()
        thread.join()


def submitted(portal: LivePortal, project: str, command: str = "sleep 600") -> int:
    body = {"project": project, "command": command, "total_steps": 10, "gpus": {"min": 1, "max": 1}}
    with portal.api() as api:
        answer = api.post("jobs", json=body | {"throughput": {"titan_xp": [1.0]}})
    assert answer.status_code == 201, answer.text
    return int(answer.json()["number"])


def started_and_ended(portal: LivePortal, timeout_s: float) -> float:
    """Seconds that a job of another project took, which only starts and ends."""
    began = time.monotonic()
    portal.wait_state(submitted(portal, "default", "true"), "succeeded", timeout_s=timeout_s)
    return time.monotonic() - began


def is_launching(portal: LivePortal, number: int) -> bool:
    return bool(portal.job(number)["run_state"] == "LAUNCHING")


def held(portal: LivePortal) -> int:
    return int(portal.rows("SELECT count(*) FROM jobs_hold WHERE upper_inf(during)")[0][0])


def test_a_project_that_stops_its_processes_stops_nobody_else() -> None:
    with running_portal() as portal, portal.api() as api:
        api.post("projects", json={"key": "acme", "name": "Acme"}).raise_for_status()
        first = submitted(portal, "acme")
        portal.wait_state(first, "running", timeout_s=HANGS_S)
        place = next((portal.data / "jobs").iterdir())
        alone_s = max(started_and_ended(portal, HANGS_S) for _ in range(3))
        with everything_stopped(place.stat().st_uid):
            attackers = [first, *(submitted(portal, "acme") for _ in range(3))]
            portal.wait_for("their launches", lambda: all(is_launching(portal, number) for number in attackers[1:]))
            for _ in range(3):
                started_and_ended(portal, STARTS_WITHIN_S + BUSIER * alone_s)
            for number in attackers:
                api.post(f"jobs/{number}/cancel").raise_for_status()
            portal.wait_for("all GPUs to be free", lambda: held(portal) == 0, timeout_s=HANGS_S)
