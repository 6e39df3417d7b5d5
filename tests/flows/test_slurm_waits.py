"""A whole portal on a real Slurm: what waits, is requeued or suspended there."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from scripts.slurm_cluster import SlurmCluster
from tests.executors.slurm import portal_settings
from tests.executors.slurm import slurm as slurm  # a fixture
from tests.live_portal import LivePortal, engine_portal

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

WISH: dict[str, Any] = {"model_type": None, "batch_size": 8, "total_steps": 10**7}
PLAIN = "for i in $(seq 100000); do echo tick $i; sleep 1; done"
WAIT_S = 30


@pytest.fixture(scope="module")
def portal(slurm: SlurmCluster) -> Iterator[LivePortal]:
    settings = portal_settings(slurm) | {
        "EVENKEEL_ENGINE_WAIT_S": str(WAIT_S),
    }
    with engine_portal(slurm, **settings) as portal:
        with portal.api() as api:
            price = {"accelerator_type": "a100", "price_per_hour": "1000"}
            api.post("prices", json=price).raise_for_status()
        yield portal


@pytest.fixture
def down(slurm: SlurmCluster) -> Iterator[None]:
    """Slurm takes jobs, and starts none."""
    slurm._ask("scontrol", "update", "partitionname=main", "state=down")
    yield
    slurm._ask("scontrol", "update", "partitionname=main", "state=up")


def submitted(portal: LivePortal, gpus: int, **keys: Any) -> int:
    number: int = portal.submit(command=PLAIN, gpus={"min": gpus, "max": gpus}, **WISH | keys)["number"]
    return number


def cancel(portal: LivePortal, number: int) -> None:
    with portal.api() as api:
        api.post(f"jobs/{number}/cancel").raise_for_status()
    portal.wait_state(number, "cancelled")


def says(portal: LivePortal, number: int, words: str, timeout_s: float = 60) -> dict[str, Any]:
    def there() -> dict[str, Any] | None:
        job = portal.job(number)
        return job if words in job["reason"]["text"] else None

    return dict(portal.wait_for(f"#{number} to say {words!r}", there, timeout_s))


def launches(slurm: SlurmCluster, states: str) -> list[str]:
    """The portal's jobs there, and not those of others."""
    lines = slurm._ask("squeue", "-h", f"--states={states}", "--format=%A|%k").splitlines()
    return [line.partition("|")[0] for line in lines if "|evenkeel job " in line]


def launch_of(slurm: SlurmCluster, states: str) -> str:
    [number] = launches(slurm, states)
    return number


def attempts(portal: LivePortal, number: int) -> int:
    where = f"r.job_id = j.id WHERE j.number = {number}"
    [(count,)] = portal.rows(f"SELECT count(*) FROM jobs_run r JOIN jobs_job j ON {where}")
    return int(count)


def kinds(portal: LivePortal, number: int) -> list[str]:
    where = f"e.job_id = j.id WHERE j.number = {number} ORDER BY e.id"
    return [kind for (kind,) in portal.rows(f"SELECT e.kind FROM jobs_jobevent e JOIN jobs_job j ON {where}")]


def test_a_job_that_waits_in_slurm_says_so_costs_nothing_and_starts_when_slurm_starts_it(
    portal: LivePortal, slurm: SlurmCluster, down: None
) -> None:
    number = submitted(portal, 4)
    job = says(portal, number, "Waits in Slurm (PartitionDown)")
    assert job["state"] == "starting"
    portal.wait_for("a new placement", lambda: kinds(portal, number).count("GPUS_FREE") >= 2, 3 * WAIT_S + 60)
    job = portal.job(number)
    assert Decimal(job["cost"]["so_far"]) < Decimal("12")  # 4 GPUs at 1000 an hour cost 1.1 each second
    assert not {"FAIL", "retry"} & set(kinds(portal, number))
    slurm._ask("scontrol", "update", "partitionname=main", "state=up")
    portal.wait_state(number, "running", timeout_s=120)
    assert attempts(portal, number) == 1
    cancel(portal, number)


def test_what_slurm_queues_again_or_suspends_is_said_and_runs_again(portal: LivePortal, slurm: SlurmCluster) -> None:
    number = submitted(portal, 1, restartable=True)
    portal.wait_state(number, "running")
    launch = launch_of(slurm, "RUNNING")
    slurm._ask("scontrol", "suspend", launch)
    says(portal, number, "Suspended in Slurm")
    slurm._ask("scontrol", "resume", launch)
    portal.wait_for("its end", lambda: "Suspended" not in portal.job(number)["reason"]["text"], 60)
    assert portal.job(number)["state"] == "running"
    for verb in ("requeue", "requeuehold", "requeue", "requeuehold"):  # what is a race shows itself sooner or later
        queue_again(portal, slurm, verb)
        portal.wait_state(number, "running")
    assert attempts(portal, number) == 1
    cancel(portal, number)


def queue_again(portal: LivePortal, slurm: SlurmCluster, verb: str) -> None:
    launch = launch_of(slurm, "RUNNING")
    slurm._ask("scontrol", "update", f"job={launch}", "requeue=1")
    slurm._ask("scontrol", verb, launch)

    def another() -> bool:
        return launches(slurm, "RUNNING") not in ([launch], [])

    portal.wait_for(f"another launch after {verb}", another, 180)
