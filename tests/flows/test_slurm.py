"""A whole portal on a real Slurm: from submission to the ledger, across nodes, rescaled, drained by Slurm."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from scripts.slurm_cluster import SlurmCluster
from tests.executors.slurm import portal_settings
from tests.executors.slurm import slurm as slurm  # a fixture
from tests.live_portal import LivePortal, engine_portal

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

#: Says in its log at which step it began, and how many it had seen by then.
PROGRAM = """
import time, evenkeel
with evenkeel.training() as run:
    state = run.load() or {"seen": 0}
    print("began", run.step, state["seen"], flush=True)
    for step in run.steps():
        state["seen"] += 1
        time.sleep(0.05)
        run.save(state)
"""


@pytest.fixture(scope="module")
def portal(slurm: SlurmCluster) -> Iterator[LivePortal]:
    settings = portal_settings(slurm)
    with engine_portal(slurm, **settings) as portal:
        with portal.api() as api:  # only types of the catalogue have a price from the beginning
            price = {"accelerator_type": "a100", "price_per_hour": "1000"}
            api.post("prices", json=price).raise_for_status()
        yield portal


def nodes_of(portal: LivePortal) -> dict[str, Any]:
    with portal.api() as api:
        return {node["name"]: node for node in api.get("nodes").raise_for_status().json()}


def test_a_job_trains_on_slurm_and_is_paid_for(portal: LivePortal) -> None:
    number = portal.submit(model_type="digits_mlp", total_steps=60, gpus={"min": 1, "max": 1})["number"]
    job = portal.wait_state(number, "succeeded", "failed", timeout_s=240)
    assert job["state"] == "succeeded", job
    assert job["step"] == 60
    portal.wait_for("the ledger", lambda: Decimal(portal.job(number)["cost"]["so_far"]) > 0)
    with portal.api() as api:
        assert "loss" in api.get(f"jobs/{number}/logs", headers={"Accept": "text/plain"}).text


def test_a_job_larger_than_a_node_trains_across_two(portal: LivePortal) -> None:
    command = 'python -c \'import os; print(os.environ["RANK"], os.environ["WORLD_SIZE"])\''
    gpus = {"min": 5, "max": 5}
    number = portal.submit(model_type=None, command=command, total_steps=1, batch_size=8, gpus=gpus)["number"]
    job = portal.wait_state(number, "succeeded", "failed", timeout_s=240)
    assert job["state"] == "succeeded", job


def test_a_node_that_slurm_drains_is_drained_here_until_it_is_resumed(portal: LivePortal, slurm: SlurmCluster) -> None:
    portal.wait_for("the node", lambda: "gpu3" in nodes_of(portal))
    slurm._ask("scontrol", "update", "nodename=gpu3", "state=drain", "reason=fan broken")
    drained = portal.wait_for("the drain", lambda: (node := nodes_of(portal)["gpu3"])["drained"] and node)
    assert "fan broken" in str(drained)
    slurm._ask("scontrol", "update", "nodename=gpu3", "state=resume")
    portal.wait_for("its end", lambda: not nodes_of(portal)["gpu3"]["drained"])


def test_a_job_leaves_a_drained_node_before_the_deadline_and_goes_on_on_another(
    portal: LivePortal, slurm: SlurmCluster
) -> None:
    program = portal.files / "program.py"
    program.write_text(PROGRAM)
    wish: dict[str, Any] = {"model_type": None, "batch_size": 8, "total_steps": 10**6}
    number = portal.submit(command=f"python {program}", gpus={"min": 1, "max": 1}, **wish)["number"]
    portal.wait_for("steps", lambda: portal.job(number)["step"] > 0, 120)
    [(first, _)] = holds_of(portal, number)
    others = {"command": "sleep 900", "restartable": False, "gpus": {"min": 4, "max": 4}, **wish}
    elsewhere = [portal.submit(**others)["number"] for _ in range(2)]
    for other in elsewhere:
        portal.wait_state(other, "running")
    deadline = datetime.now(UTC) + timedelta(seconds=75)
    with portal.api() as api:
        api.post(f"nodes/{first}/drain", json={"deadline_at": deadline.isoformat()}).raise_for_status()
        portal.wait_for("why", lambda: "deadline" in api.get(f"jobs/{number}/explanation").json()["text"])
        assert portal.job(number)["state"] == "running"
        portal.wait_state(number, "queued")
        [(_, left_at)] = holds_of(portal, number)
        assert left_at
        assert deadline - timedelta(seconds=60) < left_at < deadline
        api.post(f"jobs/{elsewhere[0]}/cancel").raise_for_status()
        portal.wait_for("steps elsewhere", lambda: len(began(portal, number)) == 2, 120)
        _, (second, _) = holds_of(portal, number)
        assert second != first
        assert second in slurm._ask("squeue", "--noheader", "--format=%N")
        for left in (number, elsewhere[1]):
            api.post(f"jobs/{left}/cancel").raise_for_status()
        api.post(f"nodes/{first}/resume").raise_for_status()
    (step, seen), (again, kept) = began(portal, number)
    assert (step, seen) == (0, 0)
    assert again == kept > 0


def began(portal: LivePortal, number: int) -> list[tuple[int, int]]:
    with portal.api() as api:
        log = api.get(f"jobs/{number}/logs", headers={"Accept": "text/plain"}).text
    lines = (line.split() for line in log.splitlines() if line.startswith("began"))
    return [(int(step), int(seen)) for _, step, seen in lines]


def holds_of(portal: LivePortal, number: int) -> list[tuple[str, datetime | None]]:
    """Its nodes one after another, and until when it held GPUs there."""
    return portal.rows(
        "SELECT n.name, upper(h.during) FROM jobs_hold h JOIN jobs_accelerator a ON a.id = h.accelerator_id"
        " JOIN jobs_node n ON n.id = a.node_id JOIN jobs_run r ON r.id = h.run_id JOIN jobs_job j ON j.id = r.job_id"
        f" WHERE j.number = {number} ORDER BY lower(h.during)"
    )
