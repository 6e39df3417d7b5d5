"""One portal over a real Slurm and this machine at once; and all of it killed while a job trains on each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.slurm_cluster import SlurmCluster
from tests.executors.slurm import slurm as slurm  # a fixture
from tests.live_portal import LivePortal, running_portal

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

CLUSTERS = """
clusters:
  - name: site
    executor: slurm
    settings: {{EVENKEEL_SLURM_CONF: "{conf}", EVENKEEL_SLURM_EMULATED: "1"}}
  - name: here
    executor: local
    settings: {{EVENKEEL_VIRTUAL_ACCELERATORS: "desk=titan_xp:2"}}
"""
PACE = [0.5, 1.0]
JOB = {"throughput": {"a100": PACE, "titan_xp": PACE}, "gpus": {"min": 2, "max": 2}, "checkpoint": {"every_steps": 50}}


@pytest.fixture(scope="module")
def portal(slurm: SlurmCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LivePortal]:
    file = tmp_path_factory.mktemp("clusters") / "clusters.yaml"
    file.write_text(CLUSTERS.format(conf=slurm.conf))
    with running_portal(EVENKEEL_CLUSTERS=str(file)) as made:
        yield made


def held(portal: LivePortal, cluster: str) -> set[tuple[str, int]]:
    """(node, number of the job) of all holds, ended ones too."""
    with portal.api() as api:
        holds = api.get(f"timeline?cluster={cluster}").raise_for_status().json()["holds"]
    return {(hold["node"], hold["job"]["number"]) for hold in holds}


def trains(portal: LivePortal, number: int) -> None:
    portal.wait_for("steps", lambda: portal.job(number)["step"] > 0, 240)


def test_jobs_train_on_both_kinds_at_the_same_time(portal: LivePortal) -> None:
    said = portal.manage("doctor")
    assert "WRONG" not in said
    assert "cluster site: executor slurm" in said
    assert "cluster here: executor local" in said
    jobs: dict[str, Any] = {
        name: portal.submit(**JOB, total_steps=400, cluster=name)["number"] for name in ("site", "here")
    }
    for number in jobs.values():
        trains(portal, number)
    assert {portal.job(number)["state"] for number in jobs.values()} == {"running"}
    for number in jobs.values():
        portal.wait_state(number, "succeeded", timeout_s=240)
    assert {(node[:3], number) for node, number in held(portal, "site")} == {("gpu", jobs["site"])}
    assert held(portal, "here") == {("desk", jobs["here"])}


def test_both_train_on_while_the_portal_is_killed_and_started_again(portal: LivePortal) -> None:
    numbers = [portal.submit(**JOB, total_steps=1_200, cluster=name)["number"] for name in ("site", "here")]
    for number in numbers:
        trains(portal, number)
    runs = dict(portal.rows("SELECT r.id, r.epoch FROM jobs_run r WHERE r.ended_at IS NULL"))
    files = [_said(portal.data, str(run), epoch) for run, epoch in runs.items()]
    portal.kill_all()
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
    assert len(runs) == 2
    free = "SELECT count(*) FROM jobs_hold WHERE upper_inf(during)"
    portal.wait_for("free GPUs", lambda: portal.rows(free) == [(0,)], 60)


def _said(data: Path, run: str, epoch: int) -> Path:
    [file] = data.glob(f"clusters/*/jobs/*/runs/{run}/{epoch}/sdk/rank0.jsonl")
    return file
