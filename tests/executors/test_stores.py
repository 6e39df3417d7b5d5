"""Checkpoints in a store under the local executor, warm start included, with the driver of mounted paths."""

from __future__ import annotations

import dataclasses
import json
import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from evenkeel.sdk.checkpoints import CheckpointStore as OnDisk
from evenkeel.store import STORE_SECRET

from scheduling.executors.base import CheckpointStore, LaunchRequest, Secret
from scheduling.executors.local.executor import LocalExecutor
from tests.executors.contract import ended, reason, requests_for

SUMMING = """
import sys, evenkeel
with evenkeel.training() as run:
    state = run.load() or {"seen": []}
    open(sys.argv[1], "a").write(f"{run.step}\\n")
    for step in run.steps():
        state["seen"].append(step)
        run.save(state)
"""


@pytest.fixture
def executor(tmp_path: Path) -> Iterator[LocalExecutor]:
    made = LocalExecutor(tmp_path / "data", "titan_xp:2", isolation="none", warm_start=True, preload=())
    yield made
    made.reap_orphans([], min_age_s=0)
    made.stop_warm_start(["vision"])


@pytest.fixture
def request_for(executor: LocalExecutor, tmp_path: Path) -> Callable[..., LaunchRequest]:
    make = requests_for(executor, tmp_path)
    program = tmp_path / "program.py"
    program.write_text(SUMMING)

    def request(expected: int = 0, **changes: Any) -> LaunchRequest:
        made = make("", **changes)
        resume = f"vision/{made.resume_job_id}" if made.resume_job_id else None
        store = CheckpointStore(f"file://{tmp_path}/store", f"vision/{made.job_id}", 2, expected_step=expected,
                                resume_prefix=resume, resume_step=made.resume_step)  # fmt: skip
        secret = Secret(STORE_SECRET, value=json.dumps({"options": {}, "credentials": {}}))
        argv = ("python", str(program), str(tmp_path / "began"))
        return dataclasses.replace(made, argv=argv, checkpoint_store=store, secrets=(secret,))

    return request


def test_a_job_outlives_the_machine_that_had_its_files(
    executor: LocalExecutor, request_for: Any, tmp_path: Path
) -> None:
    first = request_for(total_steps=20)
    executor.launch(first)
    assert reason(ended(executor, first.run_id)) == "done"
    shutil.rmtree(tmp_path / "data" / "jobs" / first.job_id)
    again = request_for(20, job_id=first.job_id, run_id=uuid.uuid4().hex, total_steps=30)
    executor.launch(again)
    assert reason(ended(executor, again.run_id)) == "done"
    assert (tmp_path / "began").read_text() == "0\n20\n"
    step, content = OnDisk(tmp_path / "data" / "jobs" / first.job_id / "checkpoints", 2).load_latest(pytest.fail) or (
        0,
        {},
    )
    assert (step, content["state"]["seen"]) == (30, list(range(30)))


def test_a_job_begins_with_a_checkpoint_that_is_in_the_store_alone(
    executor: LocalExecutor, request_for: Any, tmp_path: Path
) -> None:
    first = request_for(total_steps=20)
    executor.launch(first)
    ended(executor, first.run_id)
    shutil.rmtree(tmp_path / "data" / "jobs" / first.job_id / "checkpoints")
    new = request_for(20, total_steps=25, resume_job_id=first.job_id, resume_step=20)
    executor.launch(new)
    assert reason(ended(executor, new.run_id)) == "done"
    assert (tmp_path / "began").read_text() == "0\n20\n"
    assert sorted(path.name[:7] for path in (tmp_path / "store" / "vision" / new.job_id).glob("step-*")) == [
        "step-20",
        "step-25",
    ]


def test_the_launchs_file_holds_no_option_of_the_driver(
    executor: LocalExecutor, request_for: Any, tmp_path: Path
) -> None:
    secret = Secret(STORE_SECRET, value=json.dumps({"options": {}, "credentials": {"password": "the-password"}}))
    request = dataclasses.replace(request_for(total_steps=5), secrets=(secret,))
    executor.launch(request)
    ended(executor, request.run_id)
    written = b"".join(path.read_bytes() for path in (tmp_path / "data").rglob("*") if path.is_file())
    assert b"EVENKEEL_CHECKPOINT_DIR" in written
    assert b"the-password" not in written
