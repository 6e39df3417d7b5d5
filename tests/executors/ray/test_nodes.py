"""Runs on several nodes of a Ray cluster."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path

import pytest

from scheduling.executors.ray.executor import RayExecutor
from scripts.ray_cluster import RayCluster
from tests.executors.contract import ended, reason, until
from tests.executors.ray.helpers import (
    Requests,
    alive,
    epoch_dir,
    message,
    over,
    workers_of,
)
from tests.executors.ray.test_dying import say

pytestmark = pytest.mark.slow

SLEEPER = "import os, time; print('rank', os.environ['RANK'], os.environ['LOCAL_RANK'], flush=True); time.sleep(600)"


def test_ray_holds_the_planned_gpus_of_each_node(
    executor: RayExecutor, cluster: RayCluster, request_for: Requests
) -> None:
    request = over(request_for(SLEEPER), ray_1=1, ray_2=3)
    executor.launch(request)
    said = say(cluster)
    assert said["groups"] == [[f"evenkeel.{request.run_id}.1", [["ray-1", 1.0], ["ray-2", 3.0]]]]
    assert sorted(said["actors"]) == [f"evenkeel.{request.run_id}.1.{rank}" for rank in (0, 1)]
    logs = epoch_dir(cluster, request) / "logs"
    until(lambda: "rank 3 2" in _text(logs / "rank3.log"), "the last rank")
    executor.kill(request.run_id, 1)
    assert reason(ended(executor, request.run_id)) == "signal"
    assert say(cluster)["groups"] == []


@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_actor_of_one_node_ends_all(
    executor: RayExecutor, cluster: RayCluster, request_for: Requests, rank: int
) -> None:
    request = over(request_for(SLEEPER), ray_1=1, ray_2=1)
    executor.launch(request)
    hosts = [_host(cluster, name) for name in ("ray-1", "ray-2")]
    workers = [pid for host in hosts for runner in _runners(host) for pid in until(partial(workers_of, runner))]
    assert len(workers) == 2
    os.kill(hosts[rank], signal.SIGKILL)
    fact = ended(executor, request.run_id)
    assert reason(fact) == "runner_lost"
    assert message(fact).startswith(f"its actor on node ray-{rank + 1} died")
    assert not any(alive(pid) for pid in workers)


def test_a_lost_node_ends_the_run_on_the_others(
    executor: RayExecutor, cluster: RayCluster, request_for: Requests
) -> None:
    request = over(request_for(SLEEPER), ray_1=1, ray_2=1)
    executor.launch(request)
    [runner] = _runners(_host(cluster, "ray-1"))
    try:
        cluster.kill_daemon("ray-2")
        fact = ended(executor, request.run_id)
        assert (reason(fact), message(fact)) == ("runner_lost", "its node ray-2 was lost")
        assert not alive(runner)
    finally:
        cluster.stop_node("ray-2")
        cluster.start_node("ray-2")
    until(lambda: len(executor.inventory()) == 2, "the node")


def _host(cluster: RayCluster, node: str) -> int:
    [pid] = [pid for pid in cluster.pids(node) if _runners(pid)]
    return pid


def _runners(host: int) -> list[int]:
    """The witness of its end is its child, too, until it leaves it."""
    return [pid for pid in workers_of(host) if _is_runner(pid)]


def _is_runner(pid: int) -> bool:
    try:
        return b"evenkeel.runner" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""
