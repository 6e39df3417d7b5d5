"""What the tests of this folder share."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from evenkeel.runner.processes import all_processes, read_process

from scheduling.executors.base import Fact, LaunchRequest
from scripts.ray_cluster import RayCluster


def portal_settings(cluster: RayCluster) -> dict[str, str]:
    """Of a portal whose jobs run there, on GPUs that are only declared."""
    return {
        "EVENKEEL_EXECUTOR": "ray",
        "EVENKEEL_RAY_ADDRESS": cluster.connection.address,
        "EVENKEEL_RAY_NAMESPACE": "evenkeel-portal",
        "EVENKEEL_RAY_NODE_ADDRESS": cluster.connection.node_address,
        "EVENKEEL_EMULATED": "1",
    }


Requests = Callable[..., LaunchRequest]

#: Every rank adds its number in an all-reduce at each step, and trains a model with DistributedDataParallel.
TRAINING = """
import sys, time, torch, torch.distributed as dist, evenkeel
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
with evenkeel.training() as run:
    state = run.load() or {"sums": []}
    run.init_process_group()
    wrapped = run.wrap(model)
    for step in run.steps():
        loss = wrapped(torch.ones(2, 4) * (run.rank + 1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        value = torch.tensor(float(run.rank + 1))
        if run.world_size > 1:
            dist.all_reduce(value)
        state["sums"].append(float(value))
        time.sleep(float(sys.argv[1]))
        run.save(state)
    print("weight", round(float(model.weight.detach().sum()), 5), flush=True)
"""


def epoch_dir(cluster: RayCluster, request: LaunchRequest, epoch: int = 1) -> Path:
    return cluster.place / "data" / "jobs" / request.job_id / "runs" / request.run_id / str(epoch)


def said_steps(cluster: RayCluster, request: LaunchRequest, epoch: int = 1) -> int:
    path = epoch_dir(cluster, request, epoch) / "sdk" / "rank0.jsonl"
    return path.read_text().count('"step"') if path.exists() else 0


def over(request: LaunchRequest, **gpus: int) -> LaunchRequest:
    placement = {name.replace("_", "-"): tuple(range(count)) for name, count in gpus.items()}
    return dataclasses.replace(request, placement=placement)


def state_of(cluster: RayCluster, request: LaunchRequest) -> dict[str, Any]:
    checkpoints = cluster.place / "data" / "jobs" / request.job_id / "checkpoints"
    newest = max(checkpoints.glob("step-*"), key=lambda path: int(path.name.removeprefix("step-")))
    state: dict[str, Any] = json.loads((newest / "state.json").read_text())["state"]
    return state


def message(fact: Fact) -> str:
    assert fact.exit
    return fact.exit.message


def alive(pid: int) -> bool:
    process = read_process(pid)
    return process is not None and process.alive


def workers_of(runner: int) -> list[int]:
    return [process.pid for process in all_processes() if process.ppid == runner and process.alive]
