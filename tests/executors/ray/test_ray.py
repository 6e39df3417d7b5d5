"""The Ray executor under the contract on a real cluster, and what is its alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scheduling.executors.base import Executor, LaunchRequest
from scheduling.executors.ray.executor import RayExecutor
from tests.executors.contract import ExecutorContract, until
from tests.executors.ray.cluster import RayCluster

pytestmark = pytest.mark.timeout(400)


def epoch_dir(cluster: RayCluster, request: LaunchRequest, epoch: int = 1) -> Path:
    return cluster.place / "data" / "jobs" / request.job_id / "runs" / request.run_id / str(epoch)


class TestRayExecutor(ExecutorContract):
    @pytest.fixture
    def executor(self, executor: RayExecutor, cluster: RayCluster) -> Executor:
        self.cluster = cluster
        return executor

    @pytest.fixture
    def place(self, place: Path) -> Path:
        return place

    def let_it_train(self, executor: Executor, request: LaunchRequest, epoch: int) -> None:
        path = epoch_dir(self.cluster, request, epoch) / "sdk" / "rank0.jsonl"
        until(lambda: path.exists() and path.read_text().count('"step"') > 2, "a step")

    def last_state(self, request: LaunchRequest) -> dict[str, Any]:
        checkpoints = self.cluster.place / "data" / "jobs" / request.job_id / "checkpoints"
        newest = max(checkpoints.glob("step-*"), key=lambda path: int(path.name.removeprefix("step-")))
        state: dict[str, Any] = json.loads((newest / "state.json").read_text())["state"]
        return state
