"""A whole portal on a real Slurm with accounts, a default QOS, a partition of wide jobs, and features of nodes: plans
keep all of them, so that nothing waits in Slurm for a limit, and reasons say whose limit it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from scripts.slurm_cluster import SlurmCluster
from tests.executors.slurm import portal_settings, slurm_or_skipped
from tests.live_portal import LivePortal, engine_portal
from tests.ordinary_account import NAME, ordinary_account

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

WISH: dict[str, Any] = {"model_type": None, "batch_size": 8, "total_steps": 1}
MORE = ("AccountingStorageEnforce=associations,limits,qos", "PartitionName=wide Nodes=ALL MinNodes=2 MaxTime=1-0")
NODES = """
    SELECT n.name, count(*) FROM jobs_hold h JOIN jobs_accelerator a ON a.id = h.accelerator_id
    JOIN jobs_node n ON n.id = a.node_id JOIN jobs_run r ON r.id = h.run_id JOIN jobs_job j ON j.id = r.job_id
    WHERE j.number = {} GROUP BY n.name ORDER BY n.name
"""


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmCluster]:
    ordinary_account()
    with slurm_or_skipped(nodes=3, gpus=2, accounting=True, more=MORE) as cluster:
        limits = ("MinTRESPerJob=gres/gpu=2", "MaxTRESPerNode=gres/gpu=1", "MaxJobsPerUser=1")
        for words in (
            ("qos", "few", *limits),
            ("account", "robots", "Description=r", "Organization=o"),
            ("account", "open", "Description=o", "Organization=o", "MaxSubmitJobs=2"),
            ("user", NAME, "account=robots", "qos=few,normal", "DefaultQOS=few"),
            ("user", NAME, "account=open"),
        ):
            cluster._ask("sacctmgr", "-i", "add", *words)
        for node in ("gpu1", "gpu2"):
            features = ("AvailableFeatures=nvlink", "ActiveFeatures=nvlink")
            cluster._ask("scontrol", "update", f"NodeName={node}", *features)
        yield cluster


@pytest.fixture(scope="module")
def portal(slurm: SlurmCluster) -> Iterator[LivePortal]:
    settings = portal_settings(slurm) | {"EVENKEEL_SLURM_ACCOUNT": "robots", "EVENKEEL_NODE_CHECKS": "0"}
    with engine_portal(slurm, **settings) as portal:
        yield portal


def refusals(portal: LivePortal, **wish: Any) -> list[str]:
    with portal.api() as api:
        answer = api.post("jobs/preview", json={"project": "default", **WISH, "command": "true", **wish})
    return [one["message"] for one in answer.json().get("errors", ())]


def waits_with(portal: LivePortal, slurm: SlurmCluster, number: int, words: str) -> None:
    portal.wait_for(words, lambda: portal.job(number)["reason"]["text"].startswith(words), 90)
    reasons = slurm._ask("squeue", "-h", "--states=PENDING", "--format=%r").split()
    assert set(reasons) <= {"None"}, "Slurm has not come to others that were sent there yet"


def test_a_default_qos_and_its_limits_are_kept(portal: LivePortal, slurm: SlurmCluster) -> None:
    small = {"gpus": {"min": 1, "max": 1}}
    portal.wait_for("the limits", lambda: refusals(portal, **small), 120)
    assert refusals(portal, **small) == ["QOS few allows no job with fewer than 2 GPUs, not with 1"]
    wish = WISH | {"command": "sleep 20", "gpus": {"min": 1, "max": 2}}
    first = portal.submit(**wish)["number"]
    portal.wait_state(first, "running", timeout_s=120)
    second = portal.submit(**wish)["number"]
    words = "QOS few allows 1 running job a user at a time, 1 is there; this one starts when one ends."
    waits_with(portal, slurm, second, words)
    for number in (first, second):
        portal.wait_state(number, "succeeded", timeout_s=180)
        rows = portal.rows(NODES.format(number))
        assert [count for _, count in rows] == [1, 1], "on two nodes, one GPU of each"


def test_wide_jobs_go_to_nodes_with_what_they_ask_for(portal: LivePortal, slurm: SlurmCluster) -> None:
    with portal.api() as api:
        names = {"partition": "wide", "account": "open", "qos": "normal"}
        api.patch("projects/default", json={"slurm": names}).raise_for_status()
    asks = {"slurm": {"constraint": "nvlink"}}
    assert refusals(portal, gpus={"min": 1, "max": 1}, **asks) == [
        "partition wide allows no job on fewer than 2 nodes: ask for at least 2 GPUs"
    ]
    assert refusals(portal, gpus={"min": 2}, slurm={"constraint": "fast"}) == ["no node has fast; they have nvlink"]
    two, four = ({"gpus": {"min": count, "max": count}, **asks} for count in (2, 4))
    first = portal.submit(**WISH | two, command="sleep 40")["number"]
    portal.wait_state(first, "running", timeout_s=120)
    second = portal.submit(**WISH | four, command="true")["number"]
    waits_with(portal, slurm, second, "Nodes with nvlink (its constraint) have 2 of their 4 GPUs free")
    for number, counts in ((first, [("gpu1", 1), ("gpu2", 1)]), (second, [("gpu1", 2), ("gpu2", 2)])):
        portal.wait_state(number, "succeeded", timeout_s=180)
        assert portal.rows(NODES.format(number)) == counts


def test_how_many_jobs_an_account_may_submit_is_kept(portal: LivePortal, slurm: SlurmCluster) -> None:
    with portal.api() as api:
        names = {"partition": None, "account": "open", "qos": "normal"}
        api.patch("projects/default", json={"slurm": names}).raise_for_status()
    wish = WISH | {"command": "sleep 15", "gpus": {"min": 1, "max": 1}}
    numbers = [portal.submit(**wish)["number"] for _ in range(3)]
    own = f"user {NAME} in account open allows 2 submitted jobs at a time, 2 are there"
    waits_with(portal, slurm, numbers[2], own)
    for number in numbers:
        portal.wait_state(number, "succeeded", timeout_s=180)
