"""Data of jobs under the local executor: each project has a cache of its own, and reads as its own account."""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from scheduling.executors.base import Data, DataEntry, ExitInfo, LaunchRequest
from scheduling.executors.local import facts
from scheduling.executors.local.executor import LocalExecutor
from tests.executors.contract import ended, reason, requests_for

READING = """
import evenkeel
with evenkeel.training() as run:
    print("reads", (run.data("numbers") / "a.txt").read_text())
    for step in run.steps():
        pass
"""


@pytest.fixture
def place() -> Iterator[Path]:
    """Pytest's own directories are closed to the accounts jobs run under."""
    with tempfile.TemporaryDirectory(prefix="evenkeel-data-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o777)
        (Path(name) / "source").mkdir(mode=0o755)
        (Path(name) / "source" / "a.txt").write_text("seven")
        yield Path(name)


@pytest.fixture
def executor(place: Path) -> Iterator[LocalExecutor]:
    made = LocalExecutor(place / "data", "titan_xp:6", preload=())
    yield made
    made.reap_orphans([], min_age_s=-2.0)
    made.stop_warm_start(["vision", "speech"])


@pytest.fixture
def request_for(executor: LocalExecutor, place: Path) -> Callable[..., LaunchRequest]:
    make = requests_for(executor, place)
    program = place / "program.py"
    program.write_text(READING)

    def request(project: str = "vision", **entry: Any) -> LaunchRequest:
        entries = (DataEntry("numbers", **(entry or {"url": f"file://{place}/source"})),)
        data = Data(entries, project, str(place / "data" / "cache"))
        return dataclasses.replace(
            make("", project_key=project, total_steps=3, data=data), argv=("python", str(program))
        )

    return request


def exit_of(executor: LocalExecutor, request: LaunchRequest) -> ExitInfo:
    executor.launch(request)
    fact = ended(executor, request.run_id)
    assert fact.exit is not None
    return fact.exit


def keys(place: Path, project: str) -> dict[str, float]:
    """What the project's cache holds, and when it was fetched."""
    return {path.parent.name: path.stat().st_mtime for path in (place / "data" / "cache" / project).glob("*/data")}


def test_a_restart_on_the_node_uses_the_cache_and_another_project_has_its_own(
    executor: LocalExecutor, request_for: Any, place: Path
) -> None:
    for project in ("vision", "speech"):
        executor.launch(request := request_for(project))
        assert reason(ended(executor, request.run_id)) == "done"
    before = keys(place, "vision")
    executor.launch(request := request_for("vision"))
    assert reason(ended(executor, request.run_id)) == "done"
    assert keys(place, "vision") == before
    assert keys(place, "vision").keys() == keys(place, "speech").keys()
    if os.geteuid() == 0:
        found = [(place / "data" / "cache" / project).stat() for project in ("vision", "speech")]
        assert [one.st_mode & 0o777 for one in found] == [0o700, 0o700]
        assert len({one.st_uid for one in found} | {0}) == 3


@pytest.mark.skipif(os.geteuid() != 0, reason="accounts of their own need root")
@pytest.mark.parametrize("form", ["url", "path"])
def test_what_another_project_may_read_is_not_read(
    executor: LocalExecutor, request_for: Any, place: Path, form: str
) -> None:
    executor.launch(request := request_for("vision"))
    assert reason(ended(executor, request.run_id)) == "done"
    theirs = str(place / "data" / "cache" / "vision" / next(iter(keys(place, "vision"))) / "data")
    (place / "source" / "closed").mkdir(mode=0o700)
    mine = {"url": f"file://{theirs}", "path": theirs}[form]
    found = exit_of(executor, request_for("speech", **{form: mine}))
    assert (found.reason, found.permanent, found.is_nodes_fault) == ("data_unavailable", True, False)
    assert "PermissionError" in found.message or "Permission denied" in found.message
    part = exit_of(executor, request_for("speech", url=f"file://{place}/source"))
    assert "PermissionError" in part.message, "a folder that may be read in part is not taken for whole"


def test_a_path_that_shall_be_written_must_be_writable(executor: LocalExecutor, request_for: Any, place: Path) -> None:
    own = place / "own"
    own.mkdir(mode=0o755)
    (own / "a.txt").write_text("nine")
    assert exit_of(executor, request_for(path=str(own))).reason == "done"
    if os.geteuid() == 0:
        found = exit_of(executor, request_for(path=str(own), read_only=False))
        assert found.reason == "data_unavailable"
        assert "may not read and write it" in found.message
    own.chmod(0o777)
    assert exit_of(executor, request_for(path=str(own), read_only=False)).reason == "done"


def test_what_an_exit_record_may_say(tmp_path: Path) -> None:
    content = {"reason": "data_unavailable", "nodes_fault": True, "permanent": "yes"}
    (tmp_path / "exit.json").write_text(json.dumps(content))
    found = facts.read_exit(tmp_path)
    assert found == ExitInfo("data_unavailable", nodes_fault=True, alleged=True)
    assert found.retryable
    assert not ExitInfo("data_unavailable", permanent=True).retryable
