"""A whole portal over a Ray cluster: a job trains through a kill -9 of everything that is the portal's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from scripts.ray_cluster import RayCluster
from tests.executors.ray.helpers import portal_settings
from tests.live_portal import LivePortal, engine_portal

pytestmark = pytest.mark.slow


@pytest.fixture
def portal(ordinary: RayCluster) -> Iterator[LivePortal]:
    with ordinary.network.inside(), engine_portal(ordinary, **portal_settings(ordinary)) as made:
        yield made


def test_a_job_trains_on_while_the_portal_is_killed_and_started_again(portal: LivePortal) -> None:
    portal.examined()
    number = portal.submit(total_steps=3_000, gpus={"min": 2, "max": 2}, checkpoint={"every_steps": 50})["number"]
    portal.wait_for("steps", lambda: portal.job(number)["step"] > 0, 240)
    [(run, epoch)] = portal.rows("SELECT id, epoch FROM jobs_run")
    [said] = portal.files.glob(f"jobs/*/runs/{run}/{epoch}/sdk/rank0.jsonl")
    portal.kill_all("scheduling.executors.ray.agent", str(portal.data / "run" / "ray"))
    before = said.stat().st_size
    portal.wait_for("steps without a portal", lambda: said.stat().st_size > before, 60)
    portal.start()
    portal.wait_state(number, "succeeded", timeout_s=300)
    assert portal.rows("SELECT count(*), max(epoch) FROM jobs_run") == [(1, epoch)]
    portal.wait_for(
        "free GPUs", lambda: portal.rows("SELECT count(*) FROM jobs_hold WHERE upper_inf(during)") == [(0,)], 60
    )
