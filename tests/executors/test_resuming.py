"""A job that begins at another job's checkpoint, with the real executor and SDK."""

from __future__ import annotations

import dataclasses
import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from evenkeel.sdk.checkpoints import CheckpointStore

from scheduling.errors import ExecutorError
from scheduling.executors.local.executor import LocalExecutor
from scheduling.executors.local.resuming import bring_checkpoint
from tests.executors.contract import ended, reason, until

PROGRAM = """
import evenkeel
with evenkeel.training() as run:
    state = run.load() or {"seen": []}
    for step in run.steps():
        state["seen"].append(step)
        run.save(state)
"""


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    (tmp_path / "new" / "checkpoints").mkdir(parents=True)
    store = CheckpointStore(tmp_path / "old" / "checkpoints", keep=3)
    for step in (5, 10):
        store.save(step, {"seen": [step]})
    return tmp_path


def notice(text: str) -> None:
    raise AssertionError(text)


def test_the_chosen_checkpoint_is_the_one_that_is_loaded(jobs: Path) -> None:
    bring_checkpoint(jobs, "new", "old", 5)
    assert CheckpointStore(jobs / "new" / "checkpoints", 3).load_latest(notice) == (5, {"seen": [5]})


def test_a_job_with_a_checkpoint_of_its_own_keeps_it(jobs: Path) -> None:
    CheckpointStore(jobs / "new" / "checkpoints", 3).save(7, {"seen": [7]})
    bring_checkpoint(jobs, "new", "old", 10)
    assert CheckpointStore(jobs / "new" / "checkpoints", 3).steps() == [7]


@pytest.mark.parametrize("harm", ["gone", "changed", "manifest", "link"])
def test_what_cannot_be_used_is_refused_for_good(jobs: Path, harm: str) -> None:
    place = jobs / "old" / "checkpoints" / "step-10"
    state = place / "state.json"
    match harm:
        case "gone":
            state.unlink()
        case "changed":
            state.write_bytes(state.read_bytes().replace(b"10", b"11"))
        case "manifest":
            (place / "manifest.json").write_text(json.dumps({"format": "pickle"}))
        case "link":
            state.rename(place / "elsewhere")
            state.symlink_to(place / "elsewhere")
    with pytest.raises(ExecutorError, match="step 10") as refused:
        bring_checkpoint(jobs, "new", "old", 10)
    assert refused.value.permanent
    assert list((jobs / "new" / "checkpoints").iterdir()) == []


def test_a_run_goes_on_where_another_job_was(tmp_path: Path, launch_request: Any) -> None:
    executor = LocalExecutor(tmp_path, "local=titan_xp:1", isolation="none", warm_start=False)
    first = launch_request(total_steps=10)
    executor.launch(first)
    assert reason(ended(executor, first.run_id)) == "done"
    second = launch_request(total_steps=14, resume_job_id=first.job_id, resume_step=5)
    executor.launch(second)
    assert reason(ended(executor, second.run_id)) == "done"
    store = CheckpointStore(tmp_path / "jobs" / second.job_id / "checkpoints", 3)
    latest = store.load_latest(notice)
    assert latest is not None
    assert latest[1]["state"]["seen"] == list(range(14))


@pytest.fixture
def launch_request() -> Any:
    from scheduling.executors.base import LaunchRequest

    base = LaunchRequest(
        job_id="",
        job_number=1,
        run_id="",
        epoch=1,
        project_key="vision",
        argv=("python", "-c", PROGRAM),
        shell=False,
        workdir=None,
        placement={"local": (0,)},
        env={},
        total_steps=10,
        batch_size=8,
        checkpoint_every_steps=5,
        checkpoint_keep=3,
        max_duration_s=None,
        memory_mib=None,
        cpus=None,
        api_url="http://127.0.0.1:9",
        token="secret-token",
        report_interval_s=0.5,
    )
    return lambda **changes: dataclasses.replace(base, job_id=uuid.uuid4().hex, run_id=uuid.uuid4().hex, **changes)


#: A command without the SDK: it keeps its own count, and saves it when it is asked to end.
PLAIN = """
import os, pathlib, signal, sys, time
last = pathlib.Path(os.environ["EVENKEEL_ARTIFACT_DIR"], "last.pt")
at = int(last.read_text()) if last.exists() else 0

def save(*_):
    last.write_text(str(at + 1))
    sys.exit(143)

signal.signal(signal.SIGTERM, save)
pathlib.Path(sys.argv[1], f"begun-{at}").touch()
time.sleep(600)
"""


@pytest.mark.parametrize("how", ["kill", "checkpoint_and_stop", "time_limit"])
def test_what_a_program_saves_when_it_is_ended_is_there_in_the_next_attempt(
    tmp_path: Path, launch_request: Any, how: str
) -> None:
    executor = LocalExecutor(tmp_path / "data", "local=titan_xp:1", isolation="none", warm_start=False)
    limit_s = 0.2 if how == "time_limit" else None
    first = launch_request(argv=("python", "-c", PLAIN, str(tmp_path)), max_duration_s=limit_s)
    runs: tuple[str, ...] = ()
    for attempt in range(3):
        run = dataclasses.replace(first, run_id=first.run_id if not runs else uuid.uuid4().hex, earlier_run_ids=runs)
        executor.launch(run)
        until((tmp_path / f"begun-{attempt}").exists, "the program")
        if limit_s is None:
            getattr(executor, how)(run.run_id, 1)
        ended(executor, run.run_id)
        runs = (run.run_id, "0" * 32, *runs)  # one that never started left nothing
    [last] = (tmp_path / "data" / "jobs" / first.job_id / "runs").glob("*/artifacts/last.pt")
    assert (last.parent.parent.name, last.read_text()) == (runs[0], "3")


def test_a_link_in_place_of_what_was_left_leads_nowhere(tmp_path: Path, launch_request: Any) -> None:
    executor = LocalExecutor(tmp_path / "data", "local=titan_xp:1", isolation="none", warm_start=False)
    program = "import os, pathlib; place = pathlib.Path(os.environ['EVENKEEL_ARTIFACT_DIR']); "
    program_of_first = program + f"place.rmdir(); place.symlink_to({str(tmp_path)!r})"
    first = launch_request(argv=("python", "-c", program_of_first))
    executor.launch(first)
    ended(executor, first.run_id)
    check = program + "assert not place.is_symlink(), place"
    second = dataclasses.replace(first, run_id=uuid.uuid4().hex, earlier_run_ids=(first.run_id,))
    executor.launch(dataclasses.replace(second, argv=("python", "-c", check)))
    assert reason(ended(executor, second.run_id)) == "done"
