"""What every executor must make of things that are killed."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from evenkeel.runner.processes import read_process

from scheduling.executors.base import Executor
from tests.executors.contract import COUNTING, Requests, ended, reason, until

#: Says who it is and who its runner is, and waits.
WAITING = """
import os, sys, time
with open(sys.argv[1] + "/.draft" + os.environ["RANK"], "w") as file:
    file.write(f"{os.getpid()} {os.getppid()}")
os.rename(file.name, sys.argv[1] + "/pid" + os.environ["RANK"])
time.sleep(600)
"""


def gone(pid: int) -> bool:
    process = read_process(pid)
    return process is None or not process.alive


class DeathsContract(Requests):
    def another(self, executor: Executor) -> Executor:
        """The executor of a portal that was killed and started again."""
        raise NotImplementedError

    def pids(self, place: Path, rank: int) -> tuple[int, int]:
        """Of the worker, and of its runner."""
        file = place / f"pid{rank}"
        until(file.exists, f"rank {rank}")
        worker, runner = file.read_text().split()
        return int(worker), int(runner)

    def test_a_worker_that_is_killed_takes_the_others_along_and_is_told_apart(
        self, executor: Executor, request_for: Any, place: Path
    ) -> None:
        request = request_for(WAITING, str(place), workers=2)
        executor.launch(request)
        workers = [self.pids(place, rank)[0] for rank in (0, 1)]
        os.kill(workers[1], signal.SIGKILL)
        fact = ended(executor, request.run_id)
        assert reason(fact) == "signal"
        assert fact.exit
        assert fact.exit.signal == signal.SIGKILL
        assert "worker 1" in fact.exit.message
        assert all(gone(pid) for pid in workers)

    def test_a_runner_that_is_killed_takes_its_workers_along(
        self, executor: Executor, request_for: Any, place: Path
    ) -> None:
        request = request_for(WAITING, str(place), workers=2)
        executor.launch(request)
        (first, runner), (second, _) = self.pids(place, 0), self.pids(place, 1)
        os.kill(runner, signal.SIGKILL)
        assert reason(ended(executor, request.run_id)) == "runner_lost"
        assert gone(first)
        assert gone(second)

    def test_training_outlives_the_portal_and_is_found_again(
        self, executor: Executor, request_for: Any, place: Path
    ) -> None:
        request = request_for(COUNTING, str(place / "starts"), "0.05", total_steps=10_000)
        executor.launch(request)
        self.let_it_train(executor, request, 1)
        later = self.another(executor)
        later.launch(request)  # the command is sent again
        assert later.observe([(request.run_id, 1)])[0].kind == "alive"
        later.checkpoint_and_stop(request.run_id, 1)
        fact = ended(later, request.run_id)
        assert reason(fact) == "stopped"
        assert fact.exit
        assert self.last_state(request)["seen"] == list(range(fact.exit.step or 0))
        assert (place / "starts").read_text() == "started\n"
