"""A real Slurm with accounting that forgets ended jobs within seconds: what sacct knows counts then."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from scheduling.executors.base import LaunchRequest
from scheduling.executors.slurm.executor import SlurmExecutor
from scheduling.executors.slurm.names import launch_name
from scripts.slurm_cluster import SlurmCluster
from tests.executors.contract import ended, reason, requests_for, until
from tests.executors.contract_deaths import WAITING, gone
from tests.executors.slurm import slurm_or_skipped
from tests.executors.test_slurm import place as place  # a fixture

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def forgetful() -> Iterator[SlurmCluster]:
    with slurm_or_skipped(nodes=1, gpus=2, accounting=True, forgets_jobs_s=2) as cluster:
        yield cluster


@pytest.fixture
def executor(place: Path, forgetful: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmExecutor]:
    monkeypatch.setenv("SLURM_CONF", str(forgetful.conf))
    made = SlurmExecutor(place / "data", conf=str(forgetful.conf), emulated=True)
    yield made
    made.reap_orphans([], min_age_s=-2.0)


@pytest.fixture
def request_for(executor: SlurmExecutor, place: Path) -> Callable[..., LaunchRequest]:
    return requests_for(executor, place)


def await_forgotten(executor: SlurmExecutor, request: LaunchRequest) -> None:
    name = launch_name(request.run_id, 1)
    until(lambda: not executor._commands.jobs(name), "squeue to have forgotten it")
    record = executor._layout.record(request.run_id)
    assert record
    assert [job.name for job in executor._past(record, 1) or ()] == [f"evenkeel-{request.job_number}"]


def test_a_launch_nobody_noted_is_found_in_accounting_and_not_repeated(
    executor: SlurmExecutor, request_for: Callable[..., LaunchRequest], place: Path
) -> None:
    request = request_for()
    executor.launch(request)
    until(lambda: (place / "starts").exists(), "its start")
    await_forgotten(executor, request)
    executor._notes.forget(request.run_id, 1)
    later = SlurmExecutor(place / "data", emulated=True)
    later.launch(request)
    assert reason(ended(later, request.run_id)) == "done"
    assert (place / "starts").read_text() == "started\n"


def test_an_end_without_a_record_is_told_in_the_words_of_accounting(
    executor: SlurmExecutor, request_for: Callable[..., LaunchRequest], place: Path
) -> None:
    request = request_for(WAITING, str(place))
    executor.launch(request)
    until((place / "pid0").exists, "the worker")
    worker, runner = map(int, (place / "pid0").read_text().split())
    os.kill(runner, signal.SIGKILL)
    await_forgotten(executor, request)
    fact = ended(executor, request.run_id)
    assert reason(fact) == "runner_lost"
    assert fact.exit
    assert "ended (failed) without a record of its runner" in fact.exit.message
    assert gone(worker)
