"""A whole portal on a real Slurm whose partition, QOS and accounts have limits: nothing is sent that it would hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from scripts.slurm_cluster import SlurmCluster
from tests.executors.slurm import portal_settings, slurm_or_skipped
from tests.flows.test_slurm import PROGRAM
from tests.live_portal import LivePortal, engine_portal
from tests.ordinary_account import NAME, ordinary_account

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

WISH: dict[str, Any] = {"model_type": None, "batch_size": 8, "total_steps": 10**7}
ONE = {"min": 1, "max": 1}
MORE = ("AccountingStorageEnforce=associations,limits,qos", "PartitionName=narrow Nodes=ALL MaxNodes=2 MaxTime=1-0")


@pytest.fixture(scope="module")
def limited() -> Iterator[SlurmCluster]:
    ordinary_account()
    with slurm_or_skipped(nodes=3, gpus=2, accounting=True, more=MORE) as cluster:
        for words in (
            ("qos", "gold", "MaxTRESPerAccount=gres/gpu=3"),
            ("account", "vision", "Description=v", "Organization=o", "MaxTRESPerJob=gres/gpu=5"),
            ("user", NAME, "account=vision", "qos=gold,normal"),
            ("user", "root", "account=vision", "qos=gold,normal"),
        ):
            cluster._ask("sacctmgr", "-i", "add", *words)
        yield cluster


@pytest.fixture(scope="module")
def portal(limited: SlurmCluster) -> Iterator[LivePortal]:
    settings = portal_settings(limited) | {
        "EVENKEEL_SLURM_PARTITION": "narrow", "EVENKEEL_SLURM_ACCOUNT": "vision", "EVENKEEL_SLURM_QOS": "gold",
        "EVENKEEL_NODE_CHECKS": "0",
    }  # fmt: skip
    with engine_portal(limited, **settings) as portal:
        (portal.files / "program.py").write_text(PROGRAM)
        yield portal


def refusals(portal: LivePortal, **wish: Any) -> list[str]:
    with portal.api() as api:
        answer = api.post("jobs/preview", json={"project": "default", **WISH, "command": "true", **wish})
    return [one["message"] for one in answer.json().get("errors", ())]


def test_what_slurm_would_hold_for_ever_is_refused(portal: LivePortal) -> None:
    portal.wait_for("the limits", lambda: refusals(portal, gpus={"min": 5}), 120)
    assert refusals(portal, gpus={"min": 5}) == [
        "partition narrow allows 2 nodes a job, which have 4 GPUs, not 5",
        "QOS gold allows 3 GPUs an account at a time, not 5",
    ]
    assert refusals(portal, gpus={"min": 1}) == []


def test_growth_stops_at_the_qos_and_nothing_waits_for_it(portal: LivePortal, limited: SlurmCluster) -> None:
    trains = f"python {portal.files / 'program.py'}"
    pace = {"a100": [10.0, 18.0, 25.0, 31.0]}
    grows = portal.submit(command=trains, gpus={"min": 1}, throughput=pace, **WISH)["number"]
    portal.wait_for("growth", lambda: len((portal.job(grows)["allocation"] or {"gpus": []})["gpus"]) == 3, 180)
    waits = portal.submit(command="sleep 1", gpus=ONE, restartable=False, **WISH | {"total_steps": 1})["number"]
    portal.wait_for("steps", lambda: portal.job(grows)["step"] > 0, 120)
    pending = limited._ask("squeue", "-h", "--states=PENDING", "--format=%r")
    assert "QOS" not in pending
    with portal.api() as api:
        api.post(f"jobs/{grows}/cancel").raise_for_status()
    portal.wait_state(waits, "succeeded", timeout_s=120)
    portal.wait_state(grows, "cancelled", timeout_s=60)
