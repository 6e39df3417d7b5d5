"""What every executor with several nodes must do."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from benchmarks import bench_launch
from scheduling.executors.base import Executor, Fact, LaunchRequest
from tests.executors.contract import Requests, ended, reason

#: Every rank adds its number plus one in an all-reduce at each step.
ADDING = """
import os, sys, time, torch, torch.distributed as dist, evenkeel
with evenkeel.training() as run:
    state = run.load() or {"sums": []}
    run.init_process_group()
    for step in run.steps():
        value = torch.tensor(float(run.rank + 1))
        if run.world_size > 1:
            dist.all_reduce(value)
        state["sums"].append(float(value))
        time.sleep(float(sys.argv[1]))
        run.save(state)
"""
#: The same under DistributedDataParallel.
DDP = """
import torch, evenkeel
torch.manual_seed(1)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with evenkeel.training() as run:
    run.checkpoint(model=model, optimizer=optimizer)
    wrapped = run.wrap(model)
    for step in run.steps():
        indices = run.local_slice(step, 64)
        loss = wrapped(torch.tensor([[float(i % 3)] * 4 for i in indices])).square().mean()
        optimizer.zero_grad()
        run.scale_loss(loss).backward()
        optimizer.step()
        print(f"{run.rank}/{run.world_size}: {run.mean(loss.detach()):.6f}", flush=True)
"""


@pytest.mark.timeout(600)
class NodesContract(Requests):
    @pytest.fixture
    def nodes(self, executor: Executor) -> list[str]:
        names = [node.name for node in executor.inventory()]
        assert len(names) > 1
        return names

    def said(self, request: LaunchRequest, fact: Fact) -> str:
        logs = sorted((self.epoch_dir(request, request.epoch) / "logs").glob("rank*.log"))
        return "\n".join([str(fact.exit), *(f"{log.name}:\n{log.read_text()}" for log in logs)])

    def test_it_trains_across_two_nodes_of_unlike_size_and_then_on_another_node(
        self, executor: Executor, request_for: Any, nodes: list[str], place: Path
    ) -> None:
        request = request_for(ADDING, "0.02", total_steps=10_000, placement={nodes[0]: (0,), nodes[1]: (0, 1)})
        executor.launch(request)
        self.let_it_train(executor, request, 1)
        executor.checkpoint_and_stop(request.run_id, 1)
        fact = ended(executor, request.run_id)
        assert reason(fact) == "stopped", self.said(request, fact)
        assert fact.exit
        assert fact.exit.message == ""
        steps = fact.exit.step or 0
        assert steps > 0
        assert self.last_state(request)["sums"] == [6.0] * steps
        moved = dataclasses.replace(request, epoch=2, placement={nodes[-1]: (0,)}, total_steps=steps + 5)
        executor.launch(moved)
        fact = ended(executor, request.run_id, 2)
        assert reason(fact) == "done", self.said(moved, fact)
        assert self.last_state(request)["sums"] == [6.0] * steps + [1.0] * 5

    def test_how_long_the_launch_and_the_stop_of_a_gang_take(
        self, executor: Executor, request_for: Any, nodes: list[str], record_property: Any
    ) -> None:
        across = {nodes[0]: (0,), nodes[1]: (0,)}
        request = request_for(bench_launch.PROGRAM, total_steps=10_000_000, placement=across)
        self.take_its_time(executor, request, record_property)

    def test_it_grows_from_one_node_to_two_and_shrinks_back(
        self, executor: Executor, request_for: Any, nodes: list[str]
    ) -> None:
        request = request_for(ADDING, "0.02", total_steps=10_000)
        sums: list[float] = []
        alone, across = {nodes[0]: (0,)}, {nodes[0]: (0, 1), nodes[1]: (0,)}
        for epoch, placement, each in ((1, alone, 1.0), (2, across, 6.0), (3, alone, 1.0)):
            launch = dataclasses.replace(request, epoch=epoch, placement=placement)
            executor.launch(launch)
            self.let_it_train(executor, launch, epoch)
            executor.checkpoint_and_stop(request.run_id, epoch)
            fact = ended(executor, request.run_id, epoch)
            assert reason(fact) == "stopped", self.said(launch, fact)
            assert fact.exit
            assert fact.exit.message == ""
            made = (fact.exit.step or 0) - len(sums)
            assert made > 0
            sums += [each] * made
            assert self.last_state(request)["sums"] == sums

    @pytest.mark.parametrize(
        ("death", "reason_given", "exit_code", "signal"),
        [("sys.exit(7)", "user_error", 7, None), ("os.kill(os.getpid(), 9)", "signal", None, 9)],
    )
    def test_the_end_of_a_worker_that_is_not_on_the_first_node_is_told(
        self,
        executor: Executor,
        request_for: Any,
        nodes: list[str],
        death: str,
        reason_given: str,
        exit_code: int | None,
        signal: int | None,
    ) -> None:
        program = f"import os, sys, time\nif os.environ['RANK'] == '1': {death}\ntime.sleep(600)"
        request = request_for(program, placement={nodes[0]: (0,), nodes[1]: (0,)})
        executor.launch(request)
        fact = ended(executor, request.run_id)
        assert fact.exit, self.said(request, fact)
        assert (fact.exit.reason, fact.exit.exit_code, fact.exit.signal) == (reason_given, exit_code, signal)
        assert "worker 1 " in fact.exit.message

    @pytest.mark.whole
    def test_ddp_on_two_nodes_computes_what_one_node_does(
        self, executor: Executor, request_for: Any, nodes: list[str]
    ) -> None:
        losses = []
        for placement in ({nodes[0]: (0, 1)}, {nodes[0]: (0,), nodes[1]: (0,)}):
            request = request_for(DDP, total_steps=6, placement=placement)
            executor.launch(request)
            fact = ended(executor, request.run_id)
            assert reason(fact) == "done", self.said(request, fact)
            text = (self.epoch_dir(request) / "logs" / "rank1.log").read_text()
            losses.append([line.removeprefix("1/2: ") for line in text.splitlines() if line.startswith("1/2: ")])
        assert len(losses[0]) == 6
        assert losses[0] == losses[1]
