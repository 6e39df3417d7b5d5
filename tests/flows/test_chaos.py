"""Kill anything between any two steps of a job: all finish, nothing goes back, nothing is held or paid for twice.

`make chaos` runs every target at every moment and prints how long each took to recover; the default suite a sample.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil
import psycopg2
import pytest

from tests.live_portal import LivePortal, running_portal

pytestmark = [pytest.mark.whole, pytest.mark.timeout(500)]

CONTROL_PLANE = ("worker", "beat", "web", "valkey", "postgres")
TRAINING = ("runner", "training worker")
WITHOUT_PROCESSES = ("WAITING_FOR_INITIAL_CONTACT", "WAITING_FOR_INITIAL_RESOURCE", "STANDBY")
MOMENTS = (
    *WITHOUT_PROCESSES,
    "LAUNCHING",
    "RUNNING_PROTECTED",
    "RUNNING",
    "CHECKPOINTING",
    "STOPPING",
    "FINISHED",
)
SAMPLE = (("worker", "CHECKPOINTING"), ("postgres", "RUNNING"), ("training worker", "RUNNING"))
CASES = [(target, moment) for target in CONTROL_PLANE for moment in MOMENTS] + [
    (target, moment) for target in TRAINING for moment in MOMENTS if moment not in (*WITHOUT_PROCESSES, "FINISHED")
]
ENDED = ("FINISHED", "FAILED", "CANCELLED")
TRAINING_AGAIN = ("RUNNING_PROTECTED", "FINISHED")
ALL_DONE_S = 120
Record = Callable[[str, object], None]


@pytest.fixture(scope="module")
def portal() -> Iterator[LivePortal]:
    with running_portal(EVENKEEL_SPEEDUP="15") as portal:
        yield portal


@pytest.mark.parametrize(("target", "moment"), SAMPLE)
def test_jobs_finish_whatever_is_killed(portal: LivePortal, target: str, moment: str, record_property: Record) -> None:
    _all_finish(portal, target, moment, record_property)


@pytest.mark.chaos
@pytest.mark.parametrize(("target", "moment"), CASES)
def test_every_job_finishes_whatever_is_killed_when(
    portal: LivePortal, target: str, moment: str, record_property: Record
) -> None:
    _all_finish(portal, target, moment, record_property)


def _all_finish(portal: LivePortal, target: str, moment: str, record: Record) -> None:
    shape = {"model_type": "digits_mlp", "batch_size": 60, "checkpoint": {"every_steps": 40}}
    # A worker that was killed ended by a signal, which is retried where the job says so.
    retry = {"limit": 5, "backoff_s": 0.2, "on": ["launch_failed", "node_failure", "signal"]}
    shape |= {"throughput": {"titan_xp": [1.0, 1.8, 2.4, 2.8, 3.0, 3.1]}, "retry": retry}
    leaving = moment in ("CHECKPOINTING", "STOPPING")
    first = portal.submit(**shape, total_steps=300, gpus={"min": 1, "max": 2})
    # It makes room for a job that can do with nothing less, whatever others are protected; short jobs end protected.
    if leaving or moment == "RUNNING":
        portal.wait_for("it to train unprotected", lambda: _outlasts_protection(portal, first["number"]), 180)
    third = portal.submit(**shape, total_steps=60, gpus={"min": 5 if leaving else 2, "max": 6})
    second = portal.submit(**shape, total_steps=200, gpus={"min": 1, "max": 5})
    jobs = [first["id"], second["id"], third["id"]]
    hit = _kill_at(portal, target, moment, jobs)
    seconds = (
        _recovery_s(portal, jobs, MOMENTS) if target in CONTROL_PLANE else _recovery_s(portal, [hit], TRAINING_AGAIN)
    )
    record("recovery", (target, moment, seconds))
    for job in (first, second, third):
        ended = portal.wait_state(job["number"], "succeeded", "failed", timeout_s=ALL_DONE_S)
        assert ended["state"] == "succeeded", (ended["exit"], portal.logs())
    _check(portal, jobs)


def _outlasts_protection(portal: LivePortal, number: int) -> bool:
    """A launch protects for three times as long as it took, a minute on a busy machine: until then it gets steps."""
    job = portal.job(number)
    if job["total_steps"] - job["step"] < 450:
        with portal.api() as api:
            api.patch(f"jobs/{number}", json={"total_steps": job["total_steps"] + 450}).raise_for_status()
    return bool(job["run_state"] == "RUNNING")


def _among(jobs: Sequence[str]) -> str:
    return ", ".join(f"'{job}'" for job in jobs)


def _kill_at(portal: LivePortal, target: str, moment: str, jobs: list[str]) -> str:
    """Kill as soon as one of the jobs is in the state, or just was: some are over in milliseconds. The job hit."""
    been = f"EXISTS (SELECT 1 FROM jobs_jobevent e WHERE e.run_id = r.id AND e.to_state = '{moment}')"
    if moment == "WAITING_FOR_INITIAL_CONTACT":  # where each run begins
        been = "true"
    url = portal.database_url()
    give_up_at = time.monotonic() + 60
    with contextlib.closing(psycopg2.connect(url)) as connection, connection.cursor() as cursor:
        connection.autocommit = True
        while time.monotonic() < give_up_at:
            cursor.execute(
                f"SELECT r.id, r.job_id FROM jobs_run r WHERE job_id IN ({_among(jobs)}) "
                f"AND (state = '{moment}' OR {been}) ORDER BY state = '{moment}' DESC"
            )
            found = [(str(run), str(job)) for run, job in cursor.fetchall()]
            hit = _kill(portal, target, found) if found else None
            if hit:
                return hit
            time.sleep(0.01)
    raise AssertionError(f"nothing to kill: no {target} at {moment}")


def _recovery_s(portal: LivePortal, jobs: list[str], signs: tuple[str, ...]) -> float:
    """From the kill until the portal is ready and one of the jobs makes its way again: one of the states that are
    `signs`, a step of its newest launch, or the end of all."""
    began, since = time.monotonic(), f"to_timestamp({time.time()})"
    ids, states = _among(jobs), _among(signs)
    query = (
        f"SELECT 1 FROM jobs_jobevent e WHERE e.job_id IN ({ids}) AND e.to_state IN ({states}) AND e.at > {since} "
        "UNION SELECT 1 FROM jobs_metricpoint m JOIN jobs_run r ON r.id = m.run_id "
        f"WHERE r.job_id IN ({ids}) AND m.epoch = r.epoch AND m.at > {since} "
        "UNION SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM jobs_job j JOIN jobs_run r ON r.id = j.run_id "
        f"WHERE j.id IN ({ids}) AND r.state NOT IN ({_among(ENDED)}))"
    )
    portal.wait_for("it to recover", lambda: portal.ready() and portal.rows(query), ALL_DONE_S)
    return time.monotonic() - began


def _kill(portal: LivePortal, target: str, runs: list[tuple[str, str]]) -> str | None:
    """The job whose process was killed; any of them for the control plane's."""
    if target == "training worker":
        return next((job for run, job in runs if _kill_rank(run)), None)
    if target == "runner":
        return next((job for run, job in runs if _kill_runner(portal.data, run, job)), None)
    with contextlib.suppress(ProcessLookupError, FileNotFoundError):
        portal.kill(target)
        return runs[0][1]
    return None


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
    ids = _among(jobs)
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
    _never_back(portal, ids)
    _paid_once(portal, ids)


def _never_back(portal: LivePortal, ids: str) -> None:
    """Each launch goes on from a checkpoint that is no older than the newest before it."""
    launches = portal.rows(
        "SELECT r.job_id, r.attempt, m.epoch, min(m.step), min(m.at) FROM jobs_metricpoint m "
        f"JOIN jobs_run r ON r.id = m.run_id WHERE r.job_id IN ({ids}) GROUP BY 1, 2, 3"
    )
    kept = portal.rows(
        "SELECT r.job_id, c.step, c.at FROM jobs_checkpoint c JOIN jobs_run r ON r.id = c.run_id "
        f"WHERE job_id IN ({ids})"
    )
    for job, attempt, epoch, first_step, first_at in launches:
        earlier = [at for j, a, e, _, at in launches if j == job and (a, e) < (attempt, epoch)]
        # What this launch itself wrote before its first report says nothing.
        before = max((step for j, step, at in kept if j == job and earlier and at < first_at), default=0)
        assert first_step >= before, f"{job} attempt {attempt} epoch {epoch} went back past its checkpoint at {before}"


def _paid_once(portal: LivePortal, ids: str) -> None:
    """The ledger has every hold from its beginning to its end, once."""
    wrong = portal.rows(
        "SELECT h.id FROM jobs_hold h JOIN jobs_run r ON r.id = h.run_id LEFT JOIN accounts_ledgerentry l "
        f"ON l.hold_id = h.id AND l.resource = 'gpu' WHERE r.job_id IN ({ids}) GROUP BY h.id, h.during "
        "HAVING coalesce(sum(l.held_us), 0) <> round(extract(epoch FROM upper(h.during) - lower(h.during)) * 1000000)"
    )
    assert wrong == []
