"""How often Slurm's controller is asked: seldom while nothing changes, at once where something of ours does."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from scheduling.errors import ExecutorError
from scheduling.executors.local.layout import RunRecord
from scheduling.executors.slurm.commands import Commands
from scheduling.executors.slurm.executor import SlurmExecutor
from scheduling.executors.slurm.names import launch_name
from tests.executors.test_slurm_words import NODE

RUNS = ("a", "b", "c")
KNOWN = [(run, 1) for run in RUNS]
#: Of each squeue and each scontrol show node, as sdiag counts them.
REQUESTS = 2


class Controller:
    """Plays the commands of a Slurm in which the runs' jobs are `state`; counts them."""

    def __init__(self) -> None:
        self.asked, self.state, self.here, self.now = Counter[str](), "RUNNING", True, time.time()
        self.node = "IDLE"

    def run(self, commands: Commands, *command: str, timeout_s: float | None = None) -> str:
        if command[-1] in ("partition", "config"):
            self.asked["settings"] += 1
            return ""
        self.asked[command[0]] += 1
        if not self.here:
            raise ExecutorError("no answer from Slurm", permanent=False)
        if command[:3] == ("scontrol", "show", "hostnames"):
            return "gpu1\n"
        if command[0] == "scontrol":
            return NODE.replace("State=IDLE", f"State={self.node}")
        names = enumerate((launch_name(run, 1) for run in RUNS), 7)
        return "".join(f"{i}|{i}|{self.state}|gpu1|1|2|3:00|None|(null)|{name}\n" for i, name in names)

    def look(self, executor: SlurmExecutor) -> set[tuple[str, str]]:
        """As a round does: the kinds of what is seen, and what it waits for."""
        executor.inventory()
        return {(fact.kind, fact.waits) for fact in executor.observe(KNOWN)}


@pytest.fixture
def controller(monkeypatch: pytest.MonkeyPatch) -> Controller:
    made = Controller()
    monkeypatch.setattr(Commands, "run", lambda *words, **options: made.run(*words, **options))
    monkeypatch.setattr(time, "time", lambda: made.now)
    return made


@pytest.fixture
def executor(tmp_path: Path, controller: Controller) -> SlurmExecutor:
    """Three runs were launched an hour ago."""
    made = SlurmExecutor(tmp_path)
    for run in RUNS:
        record = RunRecord(run, run, None)
        made._layout.remember(record)
        made._layout.begin(run, 1)
        place = made._layout.epoch_dir(record, 1)
        (place / "claim").mkdir(parents=True)
        (place / "claim" / "job").write_text("7")
        made._notes.write(run, 1, 7)
        os.utime(made._notes.file(run, 1), (controller.now - 3_600,) * 2)
    return made


def place_of(executor: SlurmExecutor, run: str) -> Path:
    return executor._layout.epoch_dir(RunRecord(run, run, None), 1)


def test_a_quiet_minute_is_under_twenty_requests(executor: SlurmExecutor, controller: Controller) -> None:
    controller.look(executor)
    controller.asked.clear()
    for _ in range(12):
        controller.now += 5.0
        assert controller.look(executor) == {("alive", "")}
        SlurmExecutor(executor._layout.data).reap_orphans(KNOWN)  # of another process of the portal
    assert REQUESTS * controller.asked.total() <= 20
    assert set(controller.asked) == {"squeue", "scontrol"}


def touch(executor: SlurmExecutor, path: Callable[[SlurmExecutor], Path]) -> None:
    path(executor).touch()
    os.utime(path(executor), (time.time(),) * 2)


@pytest.mark.parametrize(
    "path",
    [
        lambda executor: place_of(executor, "b") / "stop",
        lambda executor: executor._notes.kill_mark("b", 1),
        lambda executor: executor._notes.file("b", 1),
    ],
    ids=["asked to stop", "killed", "launched"],
)
def test_while_something_of_ours_changes_each_look_asks(
    executor: SlurmExecutor, controller: Controller, path: Callable[[SlurmExecutor], Path]
) -> None:
    controller.look(executor)
    touch(executor, path)
    controller.asked.clear()
    for _ in range(12):
        controller.now += 5.0
        controller.look(executor)
    assert controller.asked["squeue"] == 12
    controller.now += 120.0
    controller.look(executor)
    controller.asked.clear()
    controller.now += 5.0
    controller.look(executor)
    assert not controller.asked


def test_what_has_left_its_record_is_seen_to_have_ended_at_once(
    executor: SlurmExecutor, controller: Controller
) -> None:
    controller.look(executor)
    controller.now += 1.0
    touch(executor, lambda executor: place_of(executor, "a") / "exit.json")
    controller.state = "COMPLETED"
    facts = {fact.run_id: fact.kind for fact in executor.observe(KNOWN)}
    assert facts["a"] == "exited"


def test_what_has_begun_since_it_was_seen_to_wait_is_not_taken_for_requeued(
    executor: SlurmExecutor, controller: Controller
) -> None:
    for run in RUNS:
        (place_of(executor, run) / "claim" / "job").rename(place_of(executor, run) / "claim" / "later")
    controller.state = "PENDING"
    assert controller.look(executor) == {("alive", "waits in Slurm")}
    (place_of(executor, "a") / "claim" / "later").rename(place_of(executor, "a") / "claim" / "job")
    controller.state = "RUNNING"
    controller.now += 1.0
    assert controller.look(executor) == {("alive", "")}
    assert not executor._notes.requeue_mark("a", 1).exists()


def test_a_controller_that_failed_once_is_asked_until_it_answers(
    executor: SlurmExecutor, controller: Controller
) -> None:
    controller.look(executor)
    controller.here = False
    controller.now += 21.0
    for _ in range(2):
        with pytest.raises(ExecutorError):
            controller.look(executor)
        controller.now += 1.0
    controller.here = True
    assert controller.look(executor) == {("alive", "")}


def test_before_a_plan_is_carried_out_it_is_asked_anew(executor: SlurmExecutor, controller: Controller) -> None:
    controller.look(executor)
    now = time.time()
    for file in (executor._layout.own / "looks").iterdir():
        os.utime(file, (now, now))
    assert not executor.refresh()
    controller.now += 3.0
    assert executor.refresh()
    controller.asked.clear()
    controller.look(executor)
    assert controller.asked == {"squeue": 1, "scontrol": 1}


def test_without_an_interval_each_look_asks(tmp_path: Path, controller: Controller) -> None:
    executor = SlurmExecutor(tmp_path, look_s=0.0)
    for _ in range(3):
        executor.inventory()
    assert controller.asked == {"scontrol": 3, "settings": 2}


def test_what_is_configured_is_asked_for_once_by_all_processes(tmp_path: Path, controller: Controller) -> None:
    for _ in range(4):
        SlurmExecutor(tmp_path).inventory()
    assert controller.asked["settings"] == 2
    controller.now += 130.0
    SlurmExecutor(tmp_path).inventory()
    assert controller.asked["settings"] == 3, "a partition changes by a word, slurm.conf seldom"
    controller.now += 480.0
    SlurmExecutor(tmp_path).inventory()
    assert controller.asked["settings"] == 5


@pytest.mark.parametrize(
    ("node", "words"),
    [
        (
            "MIXED+POWERED_DOWN",
            "waits in Slurm: nodes are powering up (gpu1, for which Slurm has 60 s)",
        ),  # recorded from 22.05, as the next
        ("MIXED+NOT_RESPONDING+POWERING_UP", "waits in Slurm: nodes are powering up (gpu1, for which Slurm has 60 s)"),
        ("ALLOCATED#", "waits in Slurm: nodes are powering up (gpu1, for which Slurm has 60 s)"),
        ("MIXED", "its nodes are being made ready by Slurm"),
    ],
)
def test_a_job_says_which_node_is_powered_up_for_it(
    executor: SlurmExecutor, controller: Controller, node: str, words: str
) -> None:
    controller.state, controller.node = "CONFIGURING", node
    assert controller.look(executor) == {("alive", words)}
    assert [one.unclear for one in executor.inventory()] == [""]
