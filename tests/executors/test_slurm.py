"""The Slurm executor under the contract, on a real Slurm with three nodes on this host, and what is its alone."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from evenkeel.runner.processes import all_processes

from scheduling.errors import ExecutorError
from scheduling.executors.base import Executor, LaunchRequest
from scheduling.executors.local.sweeping import sdk_dir_of
from scheduling.executors.slurm.executor import SlurmExecutor
from scripts.slurm_cluster import SlurmCluster
from tests.executors.contract import ExecutorContract, ended, reason, until
from tests.executors.slurm import slurm as slurm  # a fixture

SLEEPER = "import time; time.sleep(600)"


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="evenkeel-slurm-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def executor(place: Path, slurm: SlurmCluster) -> Iterator[SlurmExecutor]:
    made = SlurmExecutor(place / "data", conf=str(slurm.conf), emulated=True, lease_s=4.0, skew_s=1.0)
    yield made
    made.reap_orphans([], min_age_s=-2.0)


def epoch_dir(place: Path, request: LaunchRequest, epoch: int = 1) -> Path:
    return place / "data" / "jobs" / request.job_id / "runs" / request.run_id / str(epoch)


def said(place: Path, request: LaunchRequest, epoch: int = 1) -> list[dict[str, Any]]:
    with contextlib.suppress(FileNotFoundError):
        text = (epoch_dir(place, request, epoch) / "sdk" / "rank0.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
    return []


def processes_of(place: Path, request: LaunchRequest) -> list[int]:
    mark = str(place / "data" / "jobs" / request.job_id)
    return [found.pid for found in all_processes() if found.alive and (sdk_dir_of(found.pid) or "").startswith(mark)]


class TestSlurmExecutor(ExecutorContract):
    @pytest.fixture
    def executor(self, executor: SlurmExecutor) -> Executor:
        return executor

    @pytest.fixture
    def place(self, place: Path) -> Path:
        self.where = place
        return place

    def let_it_train(self, executor: Executor, request: LaunchRequest, epoch: int) -> None:
        until(lambda: sum(line["kind"] == "step" for line in said(self.where, request, epoch)) > 1, "a step")

    def last_state(self, request: LaunchRequest) -> dict[str, Any]:
        checkpoints = self.where / "data" / "jobs" / request.job_id / "checkpoints"
        newest = max(checkpoints.glob("step-*"), key=lambda path: int(path.name.removeprefix("step-")))
        state: dict[str, Any] = json.loads((newest / "state.json").read_text())["state"]
        return state
