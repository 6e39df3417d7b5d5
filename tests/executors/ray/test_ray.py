"""The Ray executor under the contract on a real cluster, and what is its alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scheduling.executors.base import Executor, LaunchRequest
from scheduling.executors.ray.executor import RayExecutor
from scripts.ray_cluster import RayCluster
from tests.executors.contract import ExecutorContract, ended, reason, until
from tests.executors.contract_checks import ChecksContract
from tests.executors.contract_checks import api_url as api_url
from tests.executors.contract_deaths import DeathsContract
from tests.executors.contract_loss import LossContract
from tests.executors.contract_material import MaterialContract
from tests.executors.contract_nodes import NodesContract
from tests.executors.contract_software import SoftwareContract
from tests.executors.ray.conftest import connect
from tests.executors.ray.helpers import TRAINING, Requests, epoch_dir, over, said_steps, state_of


class TestRayExecutor(
    ExecutorContract, DeathsContract, NodesContract, LossContract, ChecksContract, SoftwareContract, MaterialContract
):
    @pytest.fixture
    def executor(self, executor: RayExecutor, cluster: RayCluster) -> Executor:
        self.cluster = cluster
        return executor

    @pytest.fixture
    def place(self, place: Path) -> Path:
        return place

    def let_it_train(self, executor: Executor, request: LaunchRequest, epoch: int) -> None:
        until(lambda: said_steps(self.cluster, request, epoch) > 2, "a step")

    def epoch_dir(self, request: LaunchRequest, epoch: int = 1) -> Path:
        return epoch_dir(self.cluster, request, epoch)

    def another(self, executor: Executor) -> Executor:
        executor.disconnect()  # type: ignore[attr-defined]
        return connect(self.cluster)

    def last_state(self, request: LaunchRequest) -> dict[str, Any]:
        return state_of(self.cluster, request)

    def lose(self, node: str, request: LaunchRequest) -> None:
        self.cluster.kill_daemon(node)

    def bring_back(self, node: str) -> None:
        self.cluster.stop_node(node)
        self.cluster.start_node(node)


def test_a_job_on_two_nodes_trains_as_one(executor: RayExecutor, cluster: RayCluster, request_for: Requests) -> None:
    pytest.importorskip("torch")
    request = over(request_for(TRAINING, "0"), ray_1=1, ray_2=1)
    executor.launch(request)
    fact = ended(executor, request.run_id)
    runner_log = (epoch_dir(cluster, request) / "logs" / "runner.log").read_text()
    assert reason(fact) == "done", runner_log
    state = state_of(cluster, request)
    assert state["sums"] == [3.0] * 20
    logs = [(epoch_dir(cluster, request) / "logs" / f"rank{rank}.log").read_text() for rank in (0, 1)]
    weights = {line for log in logs for line in log.splitlines() if line.startswith("weight ")}
    assert len(weights) == 1  # their inputs differ, and the gradients were averaged
