"""Kill anything between any two steps of a job: all finish, nothing goes back, nothing is held twice.

`make chaos` runs every target at every moment; the default suite a sample.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg2
import pytest

from tests.live_portal import LivePortal, running_portal

pytestmark = pytest.mark.timeout(500)

TARGETS = ("worker", "beat", "web", "valkey", "postgres", "runner", "training worker")
MOMENTS = (
    "WAITING_FOR_INITIAL_RESOURCE",
    "STANDBY",
    "LAUNCHING",
    "RUNNING_PROTECTED",
    "RUNNING",
    "CHECKPOINTING",
    "STOPPING",
)
SAMPLE = {
    ("worker", "CHECKPOINTING"),
    ("postgres", "RUNNING"),
    ("valkey", "LAUNCHING"),
    ("web", "STOPPING"),
    ("runner", "RUNNING_PROTECTED"),
    ("training worker", "RUNNING"),
}
CASES = [
    pytest.param(target, moment, marks=[] if (target, moment) in SAMPLE else pytest.mark.chaos)
    for target in TARGETS
    for moment in MOMENTS
    if not (target in ("runner", "training worker") and moment in ("WAITING_FOR_INITIAL_RESOURCE", "STANDBY"))
]
RECOVERY_S = 120


@pytest.fixture(scope="module")
def portal() -> Iterator[LivePortal]:
    with running_portal(EVENKEEL_SPEEDUP="15") as portal:
        yield portal


@pytest.mark.parametrize(("target", "moment"), CASES)
def test_every_job_finishes_whatever_is_killed(portal: LivePortal, target: str, moment: str) -> None:
    shape = {"model_type": "digits_mlp", "batch_size": 60, "checkpoint": {"every_steps": 40}}
    shape |= {"throughput": {"titan_xp": [1.0, 1.8, 2.4, 2.8, 3.0, 3.1]}, "retry": {"limit": 5, "backoff_s": 0.2}}
    leaving = moment in ("CHECKPOINTING", "STOPPING")
    # A launch on a busy machine takes seconds and protects for three times that: the job must outlast it.
    first = portal.submit(**shape, total_steps=900 if leaving else 300, gpus={"min": 1, "max": 2})
    if leaving:
        portal.wait_for("it to train unprotected", lambda: portal.job(first["number"])["run_state"] == "RUNNING")
    second = portal.submit(**shape, total_steps=200, gpus={"min": 1, "max": 5})
    third = portal.submit(**shape, total_steps=60, gpus={"min": 2, "max": 6})
    jobs = [first["id"], second["id"], third["id"]]
    _kill_at(portal, target, moment, jobs)
    for job in (first, second, third):
        ended = portal.wait_state(job["number"], "succeeded", "failed", timeout_s=RECOVERY_S)
        assert ended["state"] == "succeeded", (ended["exit"], portal.logs())
    _check(portal, jobs)


def _kill_at(portal: LivePortal, target: str, moment: str, jobs: list[str]) -> None:
    """Kill as soon as one of the jobs is in the state; a state that is over in milliseconds may just have passed."""
    ids = ", ".join(f"'{job}'" for job in jobs)
    url = portal.database_url()
    give_up_at = time.monotonic() + 60
    with contextlib.closing(psycopg2.connect(url)) as connection, connection.cursor() as cursor:
        connection.autocommit = True
        while time.monotonic() < give_up_at:
            cursor.execute(
                f"SELECT r.id, r.job_id FROM jobs_run r WHERE job_id IN ({ids}) AND "
                f"(state = '{moment}' OR EXISTS (SELECT 1 FROM jobs_jobevent e WHERE e.run_id = r.id "
                f"AND e.to_state = '{moment}'))"
            )
            found = [(str(run), str(job)) for run, job in cursor.fetchall()]
            if found and _kill(portal, target, found):
                return
            time.sleep(0.01)
    raise AssertionError(f"nothing to kill: no {target} at {moment}")


def _kill(portal: LivePortal, target: str, runs: list[tuple[str, str]]) -> bool:
    if target == "training worker":
        return any(_kill_rank(run) for run, _ in runs)
    if target == "runner":
        return any(_kill_runner(portal.data, run, job) for run, job in runs)
    with contextlib.suppress(ProcessLookupError, FileNotFoundError):
        portal.kill(target)
        return True
    return False


def _kill_rank(run: str) -> bool:
    """Workers have their output in the run's directory, and only they train in the job's working directory."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.cwd().endswith("/work") and any(run in f.path for f in process.open_files()):
                process.kill()
                return True
    return False


def _kill_runner(data: Path, run: str, job: str) -> bool:
    for note in sorted((data / "jobs" / job / "runs" / run).glob("*/runner.json"), reverse=True):
        if not (note.parent / "exit.json").exists():
            pid = int(note.read_text().split('"pid":')[1].split(",")[0].strip(" }"))
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                return True
    return False


def _check(portal: LivePortal, jobs: list[str]) -> None:
    ids = ", ".join(f"'{job}'" for job in jobs)
    for table in ("jobs_hold", "jobs_assignment"):
        query = (
            f"SELECT count(*) FROM {table} a JOIN {table} b ON a.accelerator_id = b.accelerator_id "
            "AND a.id < b.id AND a.during && b.during"
        )
        assert portal.rows(query) == [(0,)], f"an accelerator twice in {table}"
    portal.wait_for(
        "all holds to end",
        lambda: (
            portal.rows(
                f"SELECT count(*) FROM jobs_hold h JOIN jobs_run r ON r.id = h.run_id "
                f"WHERE r.job_id IN ({ids}) AND upper_inf(during)"
            )
            == [(0,)]
        ),
    )
    steps = portal.rows(
        "SELECT r.job_id, r.attempt, m.epoch, min(m.step), max(m.step) FROM jobs_metricpoint m "
        f"JOIN jobs_run r ON r.id = m.run_id WHERE r.job_id IN ({ids}) GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"
    )
    kept = portal.rows(
        "SELECT r.job_id, r.attempt, c.step, c.at FROM jobs_checkpoint c JOIN jobs_run r ON r.id = c.run_id "
        f"WHERE r.job_id IN ({ids})"
    )
    for job, attempt, _, first_step, _ in steps:
        before = max((step for j, a, step, _ in kept if j == job and a < attempt), default=0)
        assert first_step >= before, f"{job} attempt {attempt} went back past its checkpoint at {before}"
