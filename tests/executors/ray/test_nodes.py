"""Runs on several nodes of a Ray cluster."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from scheduling.executors.base import LaunchRequest
from scheduling.executors.ray.executor import RayExecutor
from tests.executors.contract import ended, reason, requests_for, until
from tests.executors.ray.cluster import RayCluster
from tests.executors.ray.test_dying import Requests, alive, epoch_dir, message, say, workers_of

pytestmark = pytest.mark.timeout(400)

#: Every rank adds its number in an all-reduce at each step, and trains a model with DistributedDataParallel.
TRAINING = """
import sys, time, torch, torch.distributed as dist, evenkeel
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
with evenkeel.training() as run:
    state = run.load() or {"sums": [], "worlds": []}
    run.init_process_group()
    wrapped = run.wrap(model)
    for step in run.steps():
        loss = wrapped(torch.ones(2, 4) * (run.rank + 1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        value = torch.tensor(float(run.rank + 1))
        dist.all_reduce(value)
        state["sums"].append(float(value))
        state["worlds"].append(dist.get_world_size())
        time.sleep(float(sys.argv[1]))
        run.save(state)
    weight = model.weight.detach().sum().reshape(1)
    all_weights = [torch.zeros(1) for _ in range(dist.get_world_size())]
    dist.all_gather(all_weights, weight)
    print("weights", len({round(float(w), 6) for w in all_weights}), flush=True)
"""
SLEEPER = "import os, time; print('rank', os.environ['RANK'], os.environ['LOCAL_RANK'], flush=True); time.sleep(600)"


@pytest.fixture
def request_for(executor: RayExecutor, place: Path) -> Requests:
    return requests_for(executor, place)


def over(request: LaunchRequest, **gpus: int) -> LaunchRequest:
    placement = {name.replace("_", "-"): tuple(range(count)) for name, count in gpus.items()}
    return dataclasses.replace(request, placement=placement)


def state_of(cluster: RayCluster, request: LaunchRequest) -> dict[str, Any]:
    checkpoints = cluster.place / "data" / "jobs" / request.job_id / "checkpoints"
    newest = max(checkpoints.glob("step-*"), key=lambda path: int(path.name.removeprefix("step-")))
    state: dict[str, Any] = json.loads((newest / "state.json").read_text())["state"]
    return state


def test_a_job_on_two_nodes_trains_as_one(executor: RayExecutor, cluster: RayCluster, request_for: Requests) -> None:
    pytest.importorskip("torch")
    request = over(request_for(TRAINING, "0"), ray_1=1, ray_2=1)
    executor.launch(request)
    fact = ended(executor, request.run_id)
    assert reason(fact) == "done", fact
    state = state_of(cluster, request)
    assert state["sums"] == [3.0] * 20
    logs = [(epoch_dir(cluster, request) / "logs" / f"rank{rank}.log").read_text() for rank in (0, 1)]
    assert all("weights 1" in log for log in logs)  # the gradients were averaged: one model


@pytest.mark.slow
def test_it_grows_over_nodes_and_shrinks_to_one(
    executor: RayExecutor, cluster: RayCluster, request_for: Requests
) -> None:
    pytest.importorskip("torch")
    request, steps = request_for(TRAINING, "0.05", total_steps=100_000), [0]
    for epoch, gpus in ((1, {"ray_1": 1}), (2, {"ray_1": 2, "ray_2": 1}), (3, {"ray_2": 1})):
        executor.launch(dataclasses.replace(over(request, **gpus), epoch=epoch))
        said = epoch_dir(cluster, request, epoch) / "sdk" / "rank0.jsonl"
        until(lambda said=said: said.exists() and said.read_text().count('"step"') > 2, "steps")  # type: ignore[misc]
        executor.checkpoint_and_stop(request.run_id, epoch)
        fact = ended(executor, request.run_id, epoch)
        assert (reason(fact), message(fact)) == ("stopped", "")
        assert fact.exit
        steps.append(fact.exit.step or 0)
    worlds = state_of(cluster, request)["worlds"]
    expected = [world for world, begin, end in zip((1, 3, 1), steps, steps[1:], strict=False) for _ in range(end - begin)]
    assert worlds == expected


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_actor_of_one_node_ends_all(
    executor: RayExecutor, cluster: RayCluster, request_for: Requests, rank: int
) -> None:
    request = over(request_for(SLEEPER), ray_1=1, ray_2=1)
    executor.launch(request)
    hosts = [_host(cluster, name) for name in ("ray-1", "ray-2")]
    workers = [pid for host in hosts for runner in workers_of(host) for pid in until(lambda r=runner: workers_of(r))]  # type: ignore[misc]
    assert len(workers) == 2
    os.kill(hosts[rank], signal.SIGKILL)
    fact = ended(executor, request.run_id)
    assert reason(fact) == "runner_lost"
    assert message(fact).startswith(f"its actor on node ray-{rank + 1} died")
    assert not any(alive(pid) for pid in workers)


@pytest.mark.slow
def test_a_lost_node_ends_the_run_on_the_others(
    executor: RayExecutor, cluster: RayCluster, request_for: Requests
) -> None:
    request = over(request_for(SLEEPER), ray_1=1, ray_2=1)
    executor.launch(request)
    [runner] = workers_of(_host(cluster, "ray-1"))
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
    [pid] = [pid for pid in cluster.pids(node) if any(_is_runner(child) for child in workers_of(pid))]
    return pid


def _is_runner(pid: int) -> bool:
    return b"evenkeel.runner" in Path(f"/proc/{pid}/cmdline").read_bytes()


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""
