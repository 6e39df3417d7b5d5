"""A whole portal on a real Slurm with accounting whose daemons are restarted, reconfigured and stopped, as in an
upgrade: nothing is lost, and nothing restarts."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from scripts.slurm_cluster import SlurmCluster
from tests.executors.slurm import portal_settings, slurm_or_skipped
from tests.live_portal import LivePortal, engine_portal

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_800)]

#: An upgrade takes minutes: TEST_AWAY_S=600.
AWAY_S = float(os.environ.get("TEST_AWAY_S", "45"))
RESTARTS = 4
TRAINS = """
import time, evenkeel
with evenkeel.training() as run:
    state = run.load() or {"seen": 0}
    print("began", run.step, flush=True)
    for step in run.steps():
        state["seen"] += 1
        time.sleep(0.05)
        run.save(state)
"""
WISH: dict[str, Any] = {"model_type": None, "batch_size": 8, "total_steps": 10**7}


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmCluster]:
    with slurm_or_skipped(nodes=3, gpus=4, accounting=True) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def portal(slurm: SlurmCluster) -> Iterator[LivePortal]:
    settings = portal_settings(slurm) | {
        "EVENKEEL_ROUND_INTERVAL_S": "0.5",  # so that it looks while nodes have not registered yet
        "EVENKEEL_SLURM_LOOK_S": "0",
    }
    with engine_portal(slurm, **settings) as portal:
        yield portal


@pytest.fixture
def jobs(portal: LivePortal) -> Iterator[list[int]]:
    """A program with the SDK and one without, each on all GPUs of a node, and one on part of the third."""
    (portal.files / "trains.py").write_text(TRAINS)
    trains, plain = f"python {portal.files / 'trains.py'}", "for i in $(seq 100000); do echo tick $i; sleep 1; done"
    commands = {trains: 4, plain: 4, plain + " #": 2}
    numbers = [portal.submit(command=one, gpus={"min": n, "max": n}, **WISH)["number"] for one, n in commands.items()]
    for number in numbers:
        portal.wait_state(number, "running")
    portal.wait_for("steps", lambda: portal.job(numbers[0])["step"] > 20, 120)
    portal.wait_for("ticks", lambda: len(ticks(portal, numbers[1])) > 2, 60)
    yield numbers
    with portal.api() as api:
        for number in numbers:
            api.post(f"jobs/{number}/cancel").raise_for_status()
    for number in numbers:
        portal.wait_state(number, "cancelled")


def ticks(portal: LivePortal, number: int) -> list[int]:
    with portal.api() as api:
        text = api.get(f"jobs/{number}/logs", headers={"Accept": "text/plain"}).text
    return [int(line.split()[1]) for line in text.splitlines() if line.startswith("tick")]


def launches(portal: LivePortal) -> list[tuple[int, int, str]]:
    return portal.rows(
        "SELECT j.number, r.epoch, r.state FROM jobs_run r JOIN jobs_job j ON j.run_id = r.id"
        " WHERE r.state IN ('RUNNING', 'RUNNING_PROTECTED') ORDER BY j.number"
    )


def stop_controller(slurm: SlurmCluster) -> None:
    os.kill(slurm.pid("slurmctld"), signal.SIGKILL)


def kinds(portal: LivePortal, after: int) -> set[str]:
    return {kind for (kind,) in portal.rows(f"SELECT DISTINCT kind FROM jobs_jobevent WHERE id > {after}")}


def newest_event(portal: LivePortal) -> int:
    [(newest,)] = portal.rows("SELECT max(id) FROM jobs_jobevent")
    return int(newest)


def test_restarts_of_the_controller_stop_nothing(portal: LivePortal, slurm: SlurmCluster, jobs: list[int]) -> None:
    before, after = [row[:2] for row in launches(portal)], newest_event(portal)
    unclear = False
    for _ in range(RESTARTS):
        stop_controller(slurm)
        slurm.start_controller()
        for _ in range(10):
            unclear |= bool(portal.rows("SELECT 1 FROM jobs_node WHERE unclear <> ''"))
            time.sleep(1.0)
    slurm._ask("scontrol", "reconfigure")
    time.sleep(5.0)
    portal.wait_for("every node", lambda: not portal.rows("SELECT 1 FROM jobs_node WHERE unclear <> '' OR lost"), 60)
    assert [row[:2] for row in launches(portal)] == before
    assert not kinds(portal, after) & {"node_lost", "REALLOCATED", "CHECKPOINTED", "FAIL", "retry"}
    assert unclear  # else nothing was tried
    for number in jobs[1:]:
        seen = ticks(portal, number)
        assert seen == list(range(1, len(seen) + 1))


def test_while_the_controller_is_away_nothing_is_planned(
    portal: LivePortal, slurm: SlurmCluster, jobs: list[int]
) -> None:
    before, after = [row[:2] for row in launches(portal)], newest_event(portal)
    stop_controller(slurm)
    os.kill(slurm.pid("slurmdbd"), signal.SIGTERM)
    away = "SELECT 1 FROM jobs_cluster WHERE engine_away_since IS NOT NULL"
    portal.wait_for("the note that it is away", lambda: portal.rows(away), 60)
    waits = portal.submit(command="echo here", gpus={"min": 4, "max": 4}, **WISH | {"total_steps": 1})["number"]
    portal.wait_for("its reason", lambda: portal.job(waits)["reason"]["code"] == "ENGINE_AWAY", 60)
    time.sleep(AWAY_S)
    assert [row[:2] for row in launches(portal)] == before
    with portal.api() as api:
        head = api.get("session").raise_for_status().json()["clusters"][0]
        assert (head["engine"], bool(head["engine_away_since_at"])) == ("Slurm", True)
    slurm.start_dbd()
    slurm.start_controller()
    portal.wait_for("its answer", lambda: not portal.rows(away), 60)
    portal.wait_for("another reason", lambda: portal.job(waits)["reason"]["code"] != "ENGINE_AWAY", 60)
    assert [row[:2] for row in launches(portal)] == before
    assert not kinds(portal, after) & {"node_lost", "REALLOCATED", "CHECKPOINTED", "FAIL", "retry"}
    with portal.api() as api:
        api.post(f"jobs/{waits}/cancel").raise_for_status()
    for number in jobs[1:]:
        seen = ticks(portal, number)
        assert seen == list(range(1, len(seen) + 1))
