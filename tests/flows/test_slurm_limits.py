"""A whole portal on a real Slurm with limits of its own: time, and memory that its nodes keep for themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from scripts.slurm_cluster import SlurmCluster
from tests.executors.slurm import portal_settings, slurm_or_skipped
from tests.flows.test_slurm import PROGRAM, began
from tests.live_portal import LivePortal, engine_portal

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

WISH: dict[str, Any] = {"model_type": None, "batch_size": 8, "total_steps": 10**7}


@pytest.fixture(scope="module")
def limited() -> Iterator[SlurmCluster]:
    with slurm_or_skipped(nodes=1, gpus=4, node_options="MemSpecLimit=2000") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def portal(limited: SlurmCluster) -> Iterator[LivePortal]:
    settings = portal_settings(limited) | {
        "EVENKEEL_SLURM_TIME": "2",  # minutes
        "EVENKEEL_SLURM_END_SIGNAL_S": "60",
    }
    with engine_portal(limited, **settings) as portal:
        yield portal


def test_all_gpus_of_a_node_that_keeps_memory_for_itself_can_be_had(portal: LivePortal) -> None:
    wish = WISH | {"total_steps": 1}
    number = portal.submit(command="true", gpus={"min": 4, "max": 4}, **wish)["number"]
    assert portal.wait_state(number, "succeeded", "failed", timeout_s=120)["state"] == "succeeded"


def test_slurm_knows_whose_job_it_was_and_how_it_ended(portal: LivePortal, limited: SlurmCluster) -> None:
    wish = WISH | {"total_steps": 1}
    number = portal.submit(command="exit 3", gpus={"min": 1, "max": 1}, **wish)["number"]
    portal.wait_state(number, "failed", timeout_s=120)
    lines = limited._ask("squeue", "-h", "--states=all", "--format=%A|%k").splitlines()
    [job] = [line.partition("|")[0] for line in lines if f"evenkeel job {number} run " in line]

    def shown() -> bool:
        text = limited._ask("scontrol", "show", "job", job)
        return "JobState=FAILED" in text and "ExitCode=3:0" in text

    portal.wait_for("Slurm's record", shown, 30)


def test_at_slurms_time_limit_programs_go_on_where_they_can_and_have_failed_where_not(portal: LivePortal) -> None:
    (portal.files / "trains.py").write_text(PROGRAM)
    gang = {"min": 1, "max": 1}
    trains = portal.submit(command=f"python {portal.files / 'trains.py'}", gpus=gang, **WISH)["number"]
    plain = portal.submit(command="for i in $(seq 600); do echo tick $i; sleep 1; done", gpus=gang, **WISH)["number"]
    job = portal.wait_state(plain, "failed", timeout_s=240)
    assert job["exit"]["reason"] == "time_limit"
    assert "engine's time limit" in job["reason"]["text"]
    portal.wait_for("the next launch", lambda: len(began(portal, trains)) >= 2, 180)
    (step, _), (again, kept), *_ = began(portal, trains)
    assert step == 0
    assert again == kept > 0
    with portal.api() as api:
        api.post(f"jobs/{trains}/cancel").raise_for_status()
    portal.wait_state(trains, "cancelled")
