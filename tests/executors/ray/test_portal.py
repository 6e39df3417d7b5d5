"""A whole portal over a Ray cluster: a job trains through a kill -9 of everything that is the portal's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from scripts.ray_cluster import RayCluster
from tests.live_portal import LivePortal, running_portal

pytestmark = pytest.mark.slow


@pytest.fixture
def portal(cluster: RayCluster) -> Iterator[LivePortal]:
    to = cluster.connection
    settings = {
        "EVENKEEL_EXECUTOR": "ray",
        "EVENKEEL_VIRTUAL_ACCELERATORS": "",
        "EVENKEEL_RAY_ADDRESS": to.address,
        "EVENKEEL_RAY_NAMESPACE": "evenkeel-portal",
        "EVENKEEL_RAY_NODE_ADDRESS": to.node_address,
        "EVENKEEL_RAY_EMULATED": "1",
    }
    with cluster.network.inside(), running_portal(**settings) as made:
        yield made


def test_a_job_trains_on_while_the_portal_is_killed_and_started_again(portal: LivePortal) -> None:
    assert "WRONG" not in portal.manage("doctor")
    number = portal.submit(total_steps=3_000, gpus={"min": 2, "max": 2}, checkpoint={"every_steps": 50})["number"]
    portal.wait_for("steps", lambda: portal.job(number)["step"] > 0, 240)
    [(run, epoch)] = portal.rows("SELECT id, epoch FROM jobs_run")
    [said] = portal.data.glob(f"jobs/*/runs/{run}/{epoch}/sdk/rank0.jsonl")
    portal.kill_all("scheduling.executors.ray.agent", str(portal.data / "run" / "ray"))
    before = said.stat().st_size
    portal.wait_for("steps without a portal", lambda: said.stat().st_size > before, 60)
    portal.start()
    portal.wait_state(number, "succeeded", timeout_s=300)
    assert portal.rows("SELECT count(*), max(epoch) FROM jobs_run") == [(1, epoch)]
    portal.wait_for(
        "free GPUs", lambda: portal.rows("SELECT count(*) FROM jobs_hold WHERE upper_inf(during)") == [(0,)], 60
    )
