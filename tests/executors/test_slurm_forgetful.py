"""A Slurm without accounting that forgets jobs while what it gave up may still run: the lease decides then, too."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from scheduling.errors import ExecutorError
from scheduling.executors.base import Fact, LaunchRequest
from scheduling.executors.local.layout import RunRecord
from scheduling.executors.slurm.commands import Commands, SlurmJob
from scheduling.executors.slurm.executor import SlurmExecutor
from scheduling.executors.slurm.names import launch_name
from scripts.slurm_cluster import SlurmCluster
from tests.executors.contract import ended, reason, requests_for, until
from tests.executors.contract_deaths import WAITING
from tests.executors.slurm import slurm_or_skipped
from tests.executors.test_slurm import place as place  # a fixture
from tests.executors.test_slurm_words import NODE

LEASE_S = 15.0
RECORD = RunRecord("r", "j", None)


class Scripted(Commands):
    """What squeue has of the run; no accounting, and one node."""

    states: str | None = "RUNNING"
    node = "IDLE"

    def jobs(self, prefix: str) -> dict[str, list[SlurmJob]]:
        name = launch_name(RECORD.run_id, 1)
        return {name: [SlurmJob(7, name, frozenset({self.states}), "gpu1", None)]} if self.states else {}

    def past_jobs(self, name: str) -> None:
        return None

    def nodes(self) -> str:
        return NODE.replace("State=IDLE", f"State={self.node}")

    def run(self, *command: str, timeout_s: float | None = None) -> str:
        return command[-1]


@pytest.fixture
def scripted(tmp_path: Path) -> tuple[SlurmExecutor, Scripted, Path]:
    """With a launch that began a minute ago."""
    executor = SlurmExecutor(tmp_path, lease_s=LEASE_S, skew_s=0.0)
    executor._commands = commands = Scripted()
    executor._layout.remember(RECORD)
    executor._layout.begin(RECORD.run_id, 1)
    epoch_dir = executor._layout.epoch_dir(RECORD, 1)
    (epoch_dir / "claim").mkdir(parents=True)
    (epoch_dir / "claim" / "job").write_text("7")
    executor._notes.file(RECORD.run_id, 1).write_text(f'{{"job_id": 7, "at": {time.time() - 60}}}')
    return executor, commands, epoch_dir


def look(executor: SlurmExecutor) -> Fact:
    [fact] = executor.observe([(RECORD.run_id, 1)])
    return fact


@pytest.mark.parametrize("before", [["NODE_FAIL"], []], ids=["seen lost before", "never seen since"])
def test_what_slurm_has_forgotten_holds_its_gpus_until_its_lease_is_over(
    scripted: tuple[SlurmExecutor, Scripted, Path], before: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    executor, commands, epoch_dir = scripted
    for commands.states in before:
        assert look(executor).kind == "alive"
    commands.states = None
    assert look(executor).kind == "alive"
    assert (epoch_dir / "stop").exists()
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + LEASE_S + 44.0)
    assert look(executor).kind == "alive"
    monkeypatch.setattr(time, "time", lambda: real() + LEASE_S + 46.0)
    assert reason(look(executor)) == "runner_lost"


@pytest.mark.parametrize("renewed_s_ago", [LEASE_S + 44.0, LEASE_S + 46.0, -20.0])
def test_a_lease_is_counted_from_the_last_report_that_the_portal_took(
    scripted: tuple[SlurmExecutor, Scripted, Path], renewed_s_ago: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor, commands, epoch_dir = scripted
    real = time.time
    now = real()
    commands.states = "NODE_FAIL"

    def kind() -> str:
        [fact] = executor.observe([(RECORD.run_id, 1)], {(RECORD.run_id, 1): now - renewed_s_ago})
        return fact.kind

    monkeypatch.setattr(time, "time", lambda: now)
    (epoch_dir / "node-gpu1").mkdir()  # of a second runner
    assert kind() == ("exited" if renewed_s_ago == LEASE_S + 46.0 else "alive")
    monkeypatch.setattr(time, "time", lambda: now + 2.0)
    assert kind() == ("alive" if renewed_s_ago < 0 else "exited")
    # Reports came after Slurm had given it up: not Slurm's word counts.
    monkeypatch.setattr(time, "time", lambda: now + LEASE_S + 46.0)
    assert kind() == ("alive" if renewed_s_ago < 0 else "exited")
    monkeypatch.setattr(time, "time", lambda: now + LEASE_S + 66.0)
    assert kind() == "exited"
    assert look(executor).kind == "exited"  # nor is it doubted by whoever does not know of the report


def test_what_has_left_word_or_never_began_has_ended(scripted: tuple[SlurmExecutor, Scripted, Path]) -> None:
    executor, commands, epoch_dir = scripted
    commands.states = None
    (epoch_dir / "claim" / "job").unlink()
    assert reason(look(executor)) == "runner_lost"


@pytest.mark.parametrize("state", ["RUNNING", "NODE_FAIL", None])
def test_a_first_runner_that_has_ended_does_not_speak_for_one_on_a_lost_node(
    scripted: tuple[SlurmExecutor, Scripted, Path], state: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor, commands, epoch_dir = scripted
    (epoch_dir / "exit.json").write_text(json.dumps({"run_id": "r", "epoch": 1, "reason": "stopped", "step": 7}))
    (epoch_dir / "node-gpu1").mkdir()
    commands.states, commands.node = state, "DOWN*"
    assert look(executor).kind == "alive"
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 46.0)
    assert look(executor).kind == ("alive" if state == "RUNNING" else "exited")
    monkeypatch.setattr(time, "time", real)
    (epoch_dir / "node-gpu1" / "ended").touch()
    assert reason(look(executor)) == "stopped"


@pytest.mark.parametrize(
    ("state", "several", "killed", "said", "told"),
    [
        ("NODE_FAIL", True, False, "user_error", "runner_lost"),
        ("PREEMPTED", True, False, "signal", "runner_lost"),
        ("CANCELLED", True, True, "signal", "signal"),  # by the portal
        ("NODE_FAIL", True, False, "out_of_memory", "out_of_memory"),
        ("FAILED", True, False, "user_error", "user_error"),
        ("NODE_FAIL", False, False, "user_error", "user_error"),
    ],
)
def test_that_slurm_ended_a_gang_outweighs_what_its_workers_said(
    scripted: tuple[SlurmExecutor, Scripted, Path], state: str, several: bool, killed: bool, said: str, told: str
) -> None:
    executor, commands, epoch_dir = scripted
    left = {"run_id": "r", "epoch": 1, "reason": said, "step": 7, "message": "connection reset by peer"}
    (epoch_dir / "exit.json").write_text(json.dumps(left))
    if several:
        (epoch_dir / "node-gpu1").mkdir()
        (epoch_dir / "node-gpu1" / "ended").touch()
    if killed:
        executor._notes.kill_mark(RECORD.run_id, 1).touch()
    commands.states = state
    ended = look(executor).exit
    assert ended is not None
    assert (ended.reason, ended.step) == (told, 7)
    assert ended.message.endswith("connection reset by peer")
    assert ended.alleged is (told == said)  # the job cannot have Slurm say so


@pytest.fixture(scope="module")
def forgetful() -> Iterator[SlurmCluster]:
    with slurm_or_skipped(nodes=2, gpus=2, forgets_jobs_s=2) as cluster:
        yield cluster


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_real_slurm_that_has_forgotten_a_lost_nodes_job(
    forgetful: SlurmCluster, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", str(forgetful.conf))
    executor = SlurmExecutor(place / "data", emulated=True, lease_s=LEASE_S, skew_s=1.0)
    request_for: Callable[..., LaunchRequest] = requests_for(executor, place)
    request = request_for(WAITING, str(place), placement={"gpu2": (0,)})
    executor.launch(request)
    until((place / "pid0").exists, "the worker")
    runner = int((place / "pid0").read_text().split()[1])
    os.kill(forgetful.pid("slurmd.gpu2"), signal.SIGKILL)
    os.kill(runner, signal.SIGSTOP)  # as if the node were cut off
    try:
        name = launch_name(request.run_id, 1)
        until(lambda: not executor._commands.jobs(name), "squeue to have forgotten it")
        forgotten_at = time.time()
        with pytest.raises(ExecutorError, match="may still run"):
            executor.launch(dataclasses.replace(request, epoch=2, placement={"gpu1": (0,)}))
        fact = ended(executor, request.run_id)
        assert reason(fact) == "runner_lost"
        assert fact.at > forgotten_at + LEASE_S
    finally:
        os.kill(runner, signal.SIGKILL)
        forgetful.start_node("gpu2")
    forgetful.await_idle()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_what_was_killed_is_known_to_have_ended_after_slurm_forgot_it(
    forgetful: SlurmCluster, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", str(forgetful.conf))
    executor = SlurmExecutor(place / "data", emulated=True, lease_s=600.0)
    request = requests_for(executor, place)(WAITING, str(place))
    executor.launch(request)
    until((place / "pid0").exists, "the worker")
    os.kill(int((place / "pid0").read_text().split()[1]), signal.SIGSTOP)  # it leaves no record
    while executor._live(request.run_id, 1):  # it returns early while a program has its grace
        executor.kill(request.run_id, 1)
    until(lambda: not executor._commands.jobs(launch_name(request.run_id, 1)), "squeue to have forgotten it")
    [fact] = executor.observe([(request.run_id, 1)])
    assert (fact.kind, reason(fact)) == ("exited", "signal")
