"""What every executor with several nodes must make of one whose daemon is killed, and of its return."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from scheduling.executors.base import Executor, LaunchRequest
from tests.executors.contract import Requests, ended, reason, until
from tests.executors.cut_off import Launch


@pytest.mark.timeout(600)
class LossContract(Requests):
    #: How a run ends whose node is lost: with a checkpoint where its runner can still write one.
    lost_as = "runner_lost"

    def lose(self, node: str, request: LaunchRequest) -> None:
        """Kill the engine's daemon on it, on which `request` trains."""
        raise NotImplementedError

    def bring_back(self, node: str) -> None:
        """Start what was killed."""
        raise NotImplementedError

    def test_a_job_leaves_a_node_that_is_lost_and_returns_when_it_is_back(
        self, executor: Executor, request_for: Any, place: Path
    ) -> None:
        names = [node.name for node in executor.inventory()]
        request = request_for(None, str(place / "starts"), "0.05", total_steps=100_000, placement={names[-1]: (0,)})
        executor.launch(request)
        until(lambda: list(self.epoch_dir(request).parents[2].glob("checkpoints/step-*")), "a checkpoint")
        self.lose(names[-1], request)
        try:
            fact = ended(executor, request.run_id)
            assert reason(fact) == self.lost_as
            assert not Launch(self.epoch_dir(request)).processes()  # before anybody may have its GPUs
            kept = self.last_state(request)["seen"]
            assert kept == list(range(len(kept)))
            elsewhere = dataclasses.replace(request, epoch=2, placement={names[0]: (0,)}, total_steps=len(kept) + 5)
            executor.launch(elsewhere)
            assert reason(ended(executor, request.run_id, 2)) == "done"
            assert self.last_state(request)["seen"] == list(range(len(kept) + 5))
        finally:
            self.bring_back(names[-1])
        until(lambda: {node.name: node.reachable for node in executor.inventory()}.get(names[-1]), "the node")
        executor.launch(dataclasses.replace(request, epoch=3, total_steps=len(kept) + 10))
        assert reason(ended(executor, request.run_id, 3)) == "done"
        assert self.last_state(request)["seen"] == list(range(len(kept) + 10))
        assert (place / "starts").read_text() == "started\n" * 3
