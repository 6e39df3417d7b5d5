"""One portal over a real Slurm, a real Ray and this machine at once; all of it is killed while a job trains on each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.ray_cluster import NodePlan, RayCluster
from tests.executors.cut_off import or_skipped, portal_over
from tests.executors.slurm import slurm_or_skipped
from tests.live_portal import LivePortal
from tests.ordinary_account import ordinary_account

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

CLUSTERS = """
clusters:
  - name: site
    executor: slurm
    settings:
      EVENKEEL_SLURM_CONF: "{slurm_conf}"
      EVENKEEL_EMULATED: "1"
      EVENKEEL_SHARED_DIR: "{{files}}/site"
  - name: lab
    executor: ray
    settings:
      EVENKEEL_RAY_ADDRESS: "{ray.address}"
      EVENKEEL_RAY_NODE_ADDRESS: "{ray.node_address}"
      EVENKEEL_EMULATED: "1"
      EVENKEEL_SHARED_DIR: "{{files}}/lab"
  - name: here
    executor: local
    settings: {{{{EVENKEEL_VIRTUAL_ACCELERATORS: "desk=titan_xp:2"}}}}
"""
EXECUTORS = {"site": "slurm", "lab": "ray", "here": "local"}
PACE = [0.5, 1.0]
JOB = {"throughput": {"a100": PACE, "titan_xp": PACE}, "gpus": {"min": 2, "max": 2}, "checkpoint": {"every_steps": 50}}


@pytest.fixture(scope="module")
def portal() -> Iterator[LivePortal]:
    """Ray's node has a network namespace of its own; all else is in that of Ray's head."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install -r requirements-ray.lock")
    ray = RayCluster([NodePlan("ray-1", "10.77.0.11", 2)], apart=True, account=ordinary_account())
    try:
        with or_skipped():
            ray.up()
        with ray.network.inside(), slurm_or_skipped(nodes=1, gpus=2, in_namespace=True, hidden=ray.head_only) as slurm:
            clusters = CLUSTERS.format(slurm_conf=slurm.conf, ray=ray.connection)
            with portal_over(ray, ray.links, clusters) as made:
                yield made
    finally:
        ray.down()


def held(portal: LivePortal, cluster: str) -> set[tuple[str, int]]:
    """(node, number of the job) of all holds, ended ones too."""
    with portal.api() as api:
        holds = api.get(f"timeline?cluster={cluster}").raise_for_status().json()["holds"]
    return {(hold["node"], hold["job"]["number"]) for hold in holds}


def trains(portal: LivePortal, number: int) -> None:
    portal.wait_for("steps", lambda: portal.job(number)["step"] > 0, 240)


def test_jobs_train_on_all_kinds_at_the_same_time(portal: LivePortal) -> None:
    said = portal.examined()
    for name, kind in EXECUTORS.items():
        assert f"cluster {name}: executor {kind}" in said
    jobs: dict[str, Any] = {name: portal.submit(**JOB, total_steps=400, cluster=name)["number"] for name in EXECUTORS}
    for number in jobs.values():
        trains(portal, number)
    assert {portal.job(number)["state"] for number in jobs.values()} == {"running"}
    for number in jobs.values():
        portal.wait_state(number, "succeeded", timeout_s=240)
    for name, node in {"site": "gpu1", "lab": "ray-1", "here": "desk"}.items():
        assert held(portal, name) == {(node, jobs[name])}


def test_all_train_on_while_the_portal_is_killed_and_started_again(portal: LivePortal) -> None:
    numbers = [portal.submit(**JOB, total_steps=1_200, cluster=name)["number"] for name in EXECUTORS]
    for number in numbers:
        trains(portal, number)
    runs = dict(portal.rows("SELECT r.id, r.epoch FROM jobs_run r WHERE r.ended_at IS NULL"))
    files = [_said(portal, str(run), epoch) for run, epoch in runs.items()]
    portal.kill_all("scheduling.executors.ray.agent", str(portal.data / "run" / "ray"))
    before = [file.stat().st_size for file in files]
    portal.wait_for(
        "steps without a portal",
        lambda: all(file.stat().st_size > size for file, size in zip(files, before, strict=True)),
    )
    portal.start()
    for number in numbers:
        portal.wait_state(number, "succeeded", timeout_s=300)
    launched = dict(portal.rows("SELECT id, epoch FROM jobs_run"))
    assert launched.items() >= runs.items(), "nothing was launched a second time"
    assert len(runs) == len(EXECUTORS)
    free = "SELECT count(*) FROM jobs_hold WHERE upper_inf(during)"
    portal.wait_for("free GPUs", lambda: portal.rows(free) == [(0,)], 60)


def _said(portal: LivePortal, run: str, epoch: int) -> Path:
    file, *more = (
        path
        for data in (portal.data / "clusters", portal.files)
        for path in data.glob(f"*/jobs/*/runs/{run}/{epoch}/sdk/rank0.jsonl")
    )
    assert not more
    return file
