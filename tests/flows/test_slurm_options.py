"""A whole portal on a real Slurm: what job files and projects ask of sbatch, and what programs find."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from scripts.slurm_cluster import SlurmCluster
from tests.executors.slurm import portal_settings, slurm_or_skipped
from tests.live_portal import LivePortal, engine_portal

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

WISH: dict[str, Any] = {"model_type": None, "batch_size": 8, "total_steps": 1, "retry": {"limit": 0}}
MORE = (
    "Licenses=matlab:2",
    "TrackWCKey=yes",
    "PartitionName=second Nodes=ALL MaxTime=30 State=UP",
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    options: dict[str, Any] = {"node_options": "Feature=fast,nvlink", "more": MORE}
    with slurm_or_skipped(nodes=2, gpus=2, **options) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def portal(cluster: SlurmCluster) -> Iterator[LivePortal]:
    with engine_portal(cluster, **portal_settings(cluster)) as portal:
        yield portal


def launches(cluster: SlurmCluster, number: int) -> list[tuple[str, ...]]:
    """Features, licenses, partition, wckey and comment of each component of each launch of a job, in their order."""
    words = ("-h", "--states=all", "--sort=i", "--format=%f|%W|%P|%w|%k")
    rows = [tuple(line.split("|")) for line in cluster._ask("squeue", *words).splitlines()]
    return [row for row in rows if f"evenkeel job {number} run " in row[-1]]


def test_options_of_a_job_file_reach_slurm_for_each_component(portal: LivePortal, cluster: SlurmCluster) -> None:
    slurm = {"constraint": "fast&nvlink", "licenses": "matlab:1", "comment": "for the paper", "nice": 7, "wckey": "p7"}
    wish = WISH | {"gpus": {"min": 3, "max": 3}, "slurm": slurm}
    number = portal.submit(command="true", **wish)["number"]
    assert portal.wait_state(number, "succeeded", "failed", timeout_s=180)["state"] == "succeeded"
    found = launches(cluster, number)
    assert [row[:4] for row in found] == [
        ("fast&nvlink", "matlab:1", "main", "p7"),
        ("fast&nvlink", "(null)", "main", "p7"),
    ]
    assert all(row[4].endswith("; for the paper") for row in found)
    with portal.api() as api:
        assert slurm.items() <= api.get(f"jobs/{number}").json()["spec"]["slurm"].items()


def test_a_project_names_what_its_jobs_are_submitted_as(portal: LivePortal, cluster: SlurmCluster) -> None:
    with portal.api() as api:
        api.post("projects", json={"key": "vision", "name": "Vision", "parent": "default"}).raise_for_status()
        api.patch("projects/default", json={"slurm": {"partition": "second", "wckey": "lab"}}).raise_for_status()
        api.patch("projects/vision", json={"slurm": {"wckey": "vision"}}).raise_for_status()
        number = portal.submit(command="true", project="vision", **WISH)["number"]
        assert portal.wait_state(number, "succeeded", "failed", timeout_s=120)["state"] == "succeeded"
        [(_, _, partition, wckey, _)] = launches(cluster, number)
        assert (partition, wckey) == ("second", "vision")
        api.patch("projects/default", json={"slurm": {"reservation": "gone"}}).raise_for_status()
        number = portal.submit(command="true", project="vision", **WISH)["number"]
        ended = portal.wait_state(number, "failed", timeout_s=120)
        assert "Slurm refused the launch: Requested reservation is invalid" in ended["reason"]["text"]
        assert "sbatch: error" not in ended["reason"]["text"]
        api.patch("projects/default", json={"slurm": dict.fromkeys(("partition", "wckey", "reservation"))})


def test_programs_find_slurms_variables_and_srun(portal: LivePortal) -> None:
    tell = "echo task $SLURM_PROCID of $SLURM_NTASKS on $SLURM_NODEID as $SLURM_LOCALID in $SLURM_JOB_NUM_NODES nodes"
    command = f"{tell}; [ $SLURM_PROCID = 0 ] && srun --overlap -N1 -n1 echo inner step $SLURM_JOB_ID"
    number = portal.submit(command=f"{command}; true", **WISH | {"gpus": {"min": 4, "max": 4}})["number"]
    job = portal.wait_state(number, "succeeded", "failed", timeout_s=180)
    with portal.api() as api:
        log = api.get(f"jobs/{number}/logs", headers={"Accept": "text/plain"}).text
        others = [
            api.get(f"jobs/{number}/logs?rank={rank}", headers={"Accept": "text/plain"}).text for rank in (1, 2, 3)
        ]
    assert job["state"] == "succeeded", log
    assert "task 0 of 4 on 0 as 0 in 2 nodes" in log
    assert "inner step " in log
    assert [f"task {rank} of 4 on {rank // 2} as {rank % 2}" in text for rank, text in enumerate(others, 1)] == [
        True
    ] * 3


def test_a_launch_asks_for_the_time_that_it_needs_and_what_is_too_long_is_told(
    portal: LivePortal, cluster: SlurmCluster
) -> None:
    sleeps = WISH | {"command": "sleep 600"}
    short = portal.submit(**sleeps, max_duration="5m")
    with portal.api() as api:
        portal.wait_for("the limits", lambda: api.post("jobs/preview", json=long_one()).json()["warnings"], 60)
        [said] = api.post("jobs/preview", json=long_one()).json()["warnings"]
        assert said.startswith("Slurm's partition main lets a launch run for 24 h, and it may need 3 d: it fails there")
        number = short["number"]
        portal.wait_state(number, "running", timeout_s=120)
        listed = cluster._ask("squeue", "-h", "--states=RUNNING", "--format=%l|%k").splitlines()
        assert [line.partition("|")[0] for line in listed if f"job {number} run" in line] == ["22:00"]
        api.post(f"jobs/{number}/cancel").raise_for_status()
    portal.wait_state(number, "cancelled")


def long_one() -> dict[str, Any]:
    return {"project": "default", "command": "sleep 600", "max_duration": "3d", **WISH}
