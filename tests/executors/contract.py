"""What every executor must do, whatever it runs jobs on. A class per executor inherits the suite."""

from __future__ import annotations

import dataclasses
import json
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks import bench_launch
from scheduling.errors import ExecutorError
from scheduling.executors.base import Executor, Fact, LaunchRequest

TIMEOUT_S = 170.0  # never waited for unless something is broken

#: Counts its steps into its state; what a resumed run continues can be read off it.
COUNTING = """
import sys, time, evenkeel
open(sys.argv[1], "a").write("started\\n")
with evenkeel.training() as run:
    state = run.load() or {"seen": []}
    for step in run.steps():
        state["seen"].append(step)
        time.sleep(float(sys.argv[2]))
        run.report(double=2 * step)
        run.save(state)
"""

#: Thousands of lines, a very long one, one that is written over, and bytes that are no text; the end has no newline.
PRINTING = r"""
import os
lines = (f"Zeile {i} von {os.environ['RANK']}: grüße, 你好" for i in range(5_000))
print(*lines, "x" * 200_000, sep="\n", flush=True)
os.write(1, b"10 %\r20 %\n\xff\0 in no encoding\n")
os.write(2, b"no end of line")
"""


#: Takes longer to save than a call of `kill` waits.
SAVING = """
import pathlib, signal, sys, time
place = pathlib.Path(sys.argv[1])

def save(*_):
    time.sleep(4)
    (place / "last.pt").write_text("saved")
    sys.exit(143)

signal.signal(signal.SIGTERM, save)
(place / "ready").touch()
time.sleep(600)
"""


def until(condition: Callable[[], Any], what: str = "") -> Any:
    give_up_at = time.monotonic() + TIMEOUT_S
    while time.monotonic() < give_up_at:
        result = condition()
        if result:
            return result
        time.sleep(0.02)
    raise AssertionError(f"did not happen: {what or condition}")


def ended(executor: Executor, run_id: str, epoch: int = 1) -> Fact:
    def look() -> Fact | None:
        [fact] = executor.observe([(run_id, epoch)])
        return fact if fact.kind != "alive" else None

    fact = until(look, "the end of the run")
    assert isinstance(fact, Fact)
    return fact


def reason(fact: Fact) -> str:
    assert fact.kind == "exited", fact
    assert fact.exit is not None
    return fact.exit.reason


def requests_for(executor: Executor, place: Path) -> Callable[..., LaunchRequest]:
    """Makes requests for its first node; without a program one that counts its steps."""
    node = executor.inventory()[0]

    def make(program: str | None = None, *arguments: str, workers: int = 1, **changes: Any) -> LaunchRequest:
        argv = ("python", "-c", COUNTING if program is None else program, *arguments)
        if program is None:
            argv = (*argv[:3], *(arguments or (str(place / "starts"), "0.02")))
        request = LaunchRequest(
            job_id=uuid.uuid4().hex,
            job_number=1,
            run_id=uuid.uuid4().hex,
            epoch=1,
            project_key="vision",
            argv=argv,
            shell=False,
            workdir=None,
            placement={node.name: tuple(range(workers))},
            env={},
            total_steps=20,
            batch_size=8,
            checkpoint_every_steps=5,
            checkpoint_keep=3,
            max_duration_s=None,
            memory_mib=None,
            cpus=None,
            api_url="http://127.0.0.1:9",  # nobody listens
            token="secret-token",
            report_interval_s=0.5,
        )
        return dataclasses.replace(request, **changes)

    return make


class Requests:
    """What every part of the suite asks of the class that inherits it: the fixtures `executor` and `place` (a
    directory its jobs can write to), and the methods below."""

    @pytest.fixture
    def executor(self) -> Executor:
        raise NotImplementedError

    @pytest.fixture
    def place(self) -> Path:
        raise NotImplementedError

    @pytest.fixture
    def request_for(self, executor: Executor, place: Path) -> Callable[..., LaunchRequest]:
        return requests_for(executor, place)

    def let_it_train(self, executor: Executor, request: LaunchRequest, epoch: int) -> None:
        """Until it has made two steps."""
        raise NotImplementedError

    def last_state(self, request: LaunchRequest) -> dict[str, Any]:
        """What the job's last checkpoint holds."""
        raise NotImplementedError

    def epoch_dir(self, request: LaunchRequest, epoch: int = 1) -> Path:
        """Where the logs of a launch lie, once there are any."""
        raise NotImplementedError

    def take_its_time(self, executor: Executor, request: LaunchRequest, record_property: Any) -> None:
        first_step_s, free_s = bench_launch.course(executor, request, self.epoch_dir(request))
        assert first_step_s > 0
        assert free_s > 0
        record_property("course", (executor.name, len(request.placement), first_step_s, free_s))


class ExecutorContract(Requests):
    """The course of one launch after another on one node."""

    def test_the_inventory_names_nodes_and_accelerators(self, executor: Executor) -> None:
        node = executor.inventory()[0]
        assert node.accelerators
        assert [device.index for device in node.accelerators] == list(range(len(node.accelerators)))

    def test_a_run_goes_to_its_end(self, executor: Executor, request_for: Any, place: Path) -> None:
        request = request_for(workers=2)
        executor.launch(request)
        fact = ended(executor, request.run_id)
        assert reason(fact) == "done"
        assert fact.exit
        assert (fact.exit.exit_code, fact.exit.step) == (0, 20)
        assert (place / "starts").read_text().count("started") == 2

    def test_how_long_a_launch_and_a_stop_take(
        self, executor: Executor, request_for: Any, record_property: Any
    ) -> None:
        """The summary says; `bench_launch` compares."""
        self.take_its_time(executor, request_for(bench_launch.PROGRAM, total_steps=10_000_000), record_property)

    def test_what_was_never_launched_is_absent(self, executor: Executor) -> None:
        facts = executor.observe([("1" * 32, 1), ("../../etc", 2)])
        assert facts[0].kind == "absent"
        assert len(facts) == 2

    def test_the_files_of_a_job_that_has_none_can_be_handed_over(self, executor: Executor) -> None:
        executor.hand_over("speech", "2" * 32)

    def test_a_job_goes_on_after_its_files_were_handed_over(
        self, executor: Executor, request_for: Any, place: Path
    ) -> None:
        request = request_for()
        executor.launch(request)
        assert reason(ended(executor, request.run_id)) == "done"
        executor.hand_over("speech", request.job_id)
        again = request_for(None, str(place / "starts-2"), "0.02", project_key="speech", total_steps=25)
        again = dataclasses.replace(again, job_id=request.job_id)
        executor.launch(again)
        assert reason(ended(executor, again.run_id)) == "done"
        assert self.last_state(request)["seen"] == list(range(25))

    def test_launching_twice_starts_once(self, executor: Executor, request_for: Any, place: Path) -> None:
        request = request_for()
        threads = [threading.Thread(target=executor.launch, args=(request,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert reason(ended(executor, request.run_id)) == "done"
        executor.launch(request)
        assert reason(ended(executor, request.run_id)) == "done"
        assert (place / "starts").read_text().count("started") == 1

    def test_it_stops_with_a_checkpoint_and_continues_on_more_and_fewer(
        self, executor: Executor, request_for: Any, place: Path
    ) -> None:
        request = request_for(None, str(place / "starts"), "0.05", total_steps=10_000)
        executor.launch(request)
        steps = []
        for epoch, workers in ((1, 1), (2, 3), (3, 2)):
            if epoch > 1:
                placement = {name: tuple(range(workers)) for name in request.placement}
                executor.launch(dataclasses.replace(request, epoch=epoch, placement=placement))
            self.let_it_train(executor, request, epoch)
            executor.checkpoint_and_stop(request.run_id, epoch)
            fact = ended(executor, request.run_id, epoch)
            assert reason(fact) == "stopped"
            assert fact.exit
            steps.append(fact.exit.step or 0)
        assert steps == sorted(set(steps))
        assert self.last_state(request)["seen"] == list(range(steps[-1]))

    def test_killing_ends_it_and_can_be_repeated(self, executor: Executor, request_for: Any) -> None:
        request = request_for("import time; time.sleep(600)", workers=2)
        executor.launch(request)
        executor.kill(request.run_id, 1)
        executor.kill(request.run_id, 1)
        fact = ended(executor, request.run_id)
        assert fact.kind == "absent" or reason(fact) == "signal"

    def test_what_is_killed_is_asked_first_and_has_time_to_save(
        self, executor: Executor, request_for: Any, place: Path
    ) -> None:
        request = request_for(SAVING, str(place))
        executor.launch(request)
        until((place / "ready").exists, "the program")
        executor.kill(request.run_id, 1)
        assert reason(ended(executor, request.run_id)) == "signal"
        assert (place / "last.pt").read_text() == "saved"

    def test_what_was_stopped_or_killed_before_it_came_never_starts(
        self, executor: Executor, request_for: Any, place: Path
    ) -> None:
        stopped, killed = request_for(), request_for()
        executor.checkpoint_and_stop(stopped.run_id, 1)
        executor.kill(killed.run_id, 1)
        for request in (stopped, killed):
            executor.launch(request)
            assert ended(executor, request.run_id).kind == "absent"
        assert not (place / "starts").exists()

    def test_a_stale_epoch_is_refused(self, executor: Executor, request_for: Any) -> None:
        request = request_for(epoch=3)
        executor.launch(request)
        with pytest.raises(ExecutorError) as refusal:
            executor.launch(dataclasses.replace(request, epoch=2))
        assert refusal.value.permanent
        assert reason(ended(executor, request.run_id, 3)) == "done"

    def test_a_new_epoch_ends_the_old_one(self, executor: Executor, request_for: Any) -> None:
        request = request_for("import time; time.sleep(600)")
        executor.launch(request)
        executor.launch(dataclasses.replace(request, epoch=2))
        old, new = executor.observe([(request.run_id, 1), (request.run_id, 2)])
        assert (old.kind, new.kind) == ("exited", "alive")
        executor.kill(request.run_id, 2)

    @pytest.mark.parametrize(
        ("program", "reason_given", "exit_code", "signal"),
        [
            ("import sys; sys.exit(7)", "user_error", 7, None),
            ("raise ValueError('a bad value')", "user_error", 1, None),
            ("import os; os.kill(os.getpid(), 11)", "signal", None, 11),
            ("raise MemoryError('no room')", "out_of_memory", 1, None),
        ],
    )
    def test_failures_are_told_apart(
        self,
        executor: Executor,
        request_for: Any,
        program: str,
        reason_given: str,
        exit_code: int | None,
        signal: int | None,
    ) -> None:
        request = request_for(program)
        executor.launch(request)
        fact = ended(executor, request.run_id)
        assert reason(fact) == reason_given
        assert fact.exit
        assert (fact.exit.exit_code, fact.exit.signal) == (exit_code, signal)

    def test_a_program_that_is_not_there_fails_the_launch(self, executor: Executor, request_for: Any) -> None:
        request = request_for(argv=("no-such-program", "x"))
        executor.launch(request)
        fact = ended(executor, request.run_id)
        assert reason(fact) == "launch_failed"
        assert fact.exit
        assert "no-such-program" in fact.exit.message

    def test_what_it_prints_is_kept_byte_for_byte(self, executor: Executor, request_for: Any) -> None:
        request = request_for(PRINTING, workers=2)
        executor.launch(request)
        assert reason(ended(executor, request.run_id)) == "done"
        for rank in (0, 1):
            log = (self.epoch_dir(request) / "logs" / f"rank{rank}.log").read_bytes()
            while log.startswith(b"[evenkeel] "):  # ours, about its devices, come before anything of its own
                log = log.partition(b"\n")[2]
            lines = b"".join(f"Zeile {i} von {rank}: grüße, 你好\n".encode() for i in range(5_000))
            assert log == lines + b"x" * 200_000 + b"\n10 %\r20 %\n\xff\0 in no encoding\nno end of line"

    def test_the_time_limit_ends_it(self, executor: Executor, request_for: Any) -> None:
        request = request_for("import time; time.sleep(600)", max_duration_s=0.3)
        executor.launch(request)
        assert reason(ended(executor, request.run_id)) == "time_limit"

    def test_a_job_gets_its_own_environment_and_not_ours(
        self, executor: Executor, request_for: Any, place: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("DATABASE_URL", "postgresql://secret")
        line = f"env > {place}/env; id -u > {place}/uid && exit 0"
        request = request_for(argv=(line,), shell=True, env={"LEARNING_RATE": "0.1", "EVENKEEL_RUN_ID": "forged"})
        executor.launch(request)
        assert reason(ended(executor, request.run_id)) == "done"
        environment = dict(row.split("=", 1) for row in (place / "env").read_text().splitlines() if "=" in row)
        assert environment["LEARNING_RATE"] == "0.1"
        assert environment["EVENKEEL_RUN_ID"] == request.run_id
        assert (environment["WORLD_SIZE"], environment["RANK"]) == ("1", "0")
        assert "DATABASE_URL" not in environment
        assert request.token not in json.dumps(environment)
