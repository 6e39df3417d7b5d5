"""A whole portal on a real Slurm: from submission to the ledger, across nodes, rescaled, drained by Slurm."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from scripts.slurm_cluster import SlurmCluster
from tests.executors.slurm import slurm as slurm  # a fixture
from tests.live_portal import LivePortal, running_portal

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def portal(slurm: SlurmCluster) -> Iterator[LivePortal]:
    settings = {
        "EVENKEEL_EXECUTOR": "slurm",
        "EVENKEEL_SLURM_CONF": str(slurm.conf),
        "EVENKEEL_SLURM_EMULATED": "1",
        "EVENKEEL_VIRTUAL_ACCELERATORS": "",
    }
    with running_portal(**settings) as portal:
        with portal.api() as api:  # only types of the catalogue have a price from the beginning
            price = {"accelerator_type": "a100", "price_per_hour": "1000"}
            api.post("rates", json=price).raise_for_status()
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
