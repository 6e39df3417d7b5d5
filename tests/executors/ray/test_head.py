"""Ray's head is killed and started again under the jobs of a whole portal: with Ray's fault tolerance, and without."""

from __future__ import annotations

import importlib.util
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from scripts.ray_cluster import NodePlan, RayCluster
from tests.executors.cut_off import OVERLAPS
from tests.executors.ray.helpers import portal_settings
from tests.live_portal import LivePortal, engine_portal
from tests.ordinary_account import ordinary_account

pytestmark = pytest.mark.slow

#: Ray's nodes give a head up that is away for a minute: with TEST_AWAY_S below that.
AWAY_S = float(os.environ.get("TEST_AWAY_S", "25"))
TRAINS = """
import time, evenkeel
with evenkeel.training() as run:
    state = run.load() or {"seen": 0}
    print("began", run.step, flush=True)
    for step in run.steps():
        state["seen"] += 1
        time.sleep(0.05)
        run.save(state)
"""
TICKS = "for i in $(seq {}); do echo tick $i; sleep 1; done"
AWAY = "SELECT 1 FROM jobs_cluster WHERE engine_away_since IS NOT NULL"
HOLDS = """
    SELECT j.number, count(*) FROM jobs_hold h JOIN jobs_run r ON r.id = h.run_id JOIN jobs_job j ON j.id = r.job_id
    GROUP BY j.number ORDER BY j.number
"""
FREE = "SELECT count(*) FROM jobs_hold WHERE upper_inf(during)"


@contextmanager
def portal_on(cluster: RayCluster) -> Iterator[LivePortal]:
    try:
        cluster.up()
        with cluster.network.inside(), engine_portal(cluster, **portal_settings(cluster)) as portal:
            (portal.files / "trains.py").write_text(TRAINS)
            yield portal
    finally:
        cluster.down()


def cluster_of(*, fault_tolerant: bool) -> RayCluster:
    if importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed: pip install -r requirements-ray.lock")
    nodes = [NodePlan("ray-1", "127.0.0.11", 2), NodePlan("ray-2", "127.0.0.12", 2)]
    return RayCluster(nodes, account=ordinary_account(), fault_tolerant=fault_tolerant)


def submit(portal: LivePortal, command: str, gpus: int, **more: Any) -> int:
    wish = {"model_type": None, "batch_size": 8, "total_steps": 10**7, "command": command}
    return int(portal.submit(gpus={"min": gpus, "max": gpus}, **wish | more)["number"])


def begun(portal: LivePortal, *, steps: int, seconds: int, **more: Any) -> tuple[int, int]:
    """A program with the SDK on three GPUs of both nodes, and one that cannot resume on the fourth, both at work."""
    trains = submit(portal, f"python {portal.files / 'trains.py'}", 3, total_steps=steps)
    plain = submit(portal, TICKS.format(seconds), 1, **more)
    portal.wait_for("steps", lambda: portal.job(trains)["step"] > 20, 240)
    portal.wait_for("ticks", lambda: len(ticks(portal, plain)) > 2, 60)
    return trains, plain


def has_ended(cluster: RayCluster, node: str) -> bool:
    return not cluster.pids(node, "raylet/raylet")


def ticks(portal: LivePortal, number: int) -> list[int]:
    with portal.api() as api:
        text = api.get(f"jobs/{number}/logs", headers={"Accept": "text/plain"}).text
    return [int(line.split()[1]) for line in text.splitlines() if line.startswith("tick")]


def runs(portal: LivePortal) -> list[tuple[int, int, str]]:
    """By number and attempt."""
    joined = "jobs_run r JOIN jobs_job j ON j.id = r.job_id"
    return portal.rows(f"SELECT j.number, r.epoch, r.state FROM {joined} ORDER BY j.number, r.attempt")


def said(portal: LivePortal) -> list[str]:
    return [f"{kind}: {text}" for kind, text in portal.rows("SELECT kind, text FROM jobs_jobevent ORDER BY id")]


def away_for(portal: LivePortal, cluster: RayCluster, seconds: float) -> int:
    """The head is killed; what is submitted meanwhile waits. Its number."""
    cluster.stop_head()
    portal.wait_for("the note that it is away", lambda: portal.rows(AWAY), 60)
    since = time.monotonic()
    waits = submit(portal, "echo here", 1, total_steps=1)
    portal.wait_for("its reason", lambda: portal.job(waits)["reason"]["code"] == "ENGINE_AWAY", 60)
    with portal.api() as api:
        head = api.get("session").raise_for_status().json()["clusters"][0]
        assert (head["engine"], bool(head["engine_away_since_at"])) == ("Ray", True)
        ready = api.get(f"{portal.base_url}/readyz").raise_for_status().json()
        [engine] = ready["engines"].values()
        assert engine.startswith("has not answered since ")
    time.sleep(max(0.0, seconds - (time.monotonic() - since)))
    return waits


def test_a_head_with_fault_tolerance_comes_back_and_nothing_restarts() -> None:
    cluster = cluster_of(fault_tolerant=True)
    with portal_on(cluster) as portal:
        trains, plain = begun(portal, steps=2_500, seconds=90)
        before, events = runs(portal), said(portal)
        waits = away_for(portal, cluster, AWAY_S)
        assert runs(portal)[:2] == before
        cluster.start_head()
        portal.wait_for("its answer", lambda: not portal.rows(AWAY), 60)
        portal.wait_state(plain, "succeeded", timeout_s=240)
        portal.wait_state(trains, "succeeded", timeout_s=240)
        portal.wait_state(waits, "succeeded", timeout_s=120)
        assert ticks(portal, plain) == list(range(1, 91))
        assert [row[:2] for row in runs(portal)] == [*(row[:2] for row in before), (waits, 1)]
        kinds = {one.partition(":")[0] for one in said(portal)[len(events) :]}
        assert not kinds & {"node_lost", "REALLOCATED", "CHECKPOINTED", "FAIL", "retry"}
        portal.wait_for("free GPUs", lambda: portal.rows(FREE) == [(0,)], 60)
        assert portal.rows(HOLDS) == [(trains, 3), (plain, 1), (waits, 1)]  # each GPU once, and so billed once
        assert portal.rows(OVERLAPS) == [(0,)]


def test_a_head_without_it_forgets_all_and_jobs_go_on_from_checkpoints() -> None:
    cluster = cluster_of(fault_tolerant=False)
    with portal_on(cluster) as portal:
        trains, plain = begun(portal, steps=2_500, seconds=10**6, retry={"on": ["out_of_memory"]})
        waits = away_for(portal, cluster, 1.0)
        cluster.start_head()
        portal.wait_for("its answer", lambda: not portal.rows(AWAY), 60)
        for name in cluster.nodes:  # they do not join a head that does not know them
            portal.wait_for(f"the end of {name}", partial(has_ended, cluster, name), 120)
            cluster.start_node(name)
        failed = portal.wait_state(plain, "failed", timeout_s=240)
        assert failed["reason"]["text"].startswith("Ray's head was started anew and knew nothing of what ran")
        portal.wait_state(trains, "succeeded", timeout_s=300)
        portal.wait_state(waits, "succeeded", timeout_s=120)
        told = [one for one in said(portal) if f"#{trains} " in one and "Ray's head was started anew" in one]
        assert told
        assert not [one for one in told if "from step 0 " in one]
        states = [(number, state) for number, _, state in runs(portal)]
        assert [state for number, state in states if number == plain] == ["FAILED"]
        assert [state for number, state in states if number == trains][-1] == "FINISHED"
        portal.wait_for("free GPUs", lambda: portal.rows(FREE) == [(0,)], 60)
        assert portal.rows(OVERLAPS) == [(0,)]
