"""Whose files a job's are, where each project has an account of its own: after a move, after a restore."""

from __future__ import annotations

import dataclasses
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scheduling.errors import ExecutorError
from scheduling.executors.account_blocks import FIRST_UID
from scheduling.executors.accounts import Account
from scheduling.executors.base import LaunchRequest, Preparation
from scheduling.executors.local.executor import LocalExecutor
from tests.executors.contract import ExecutorContract, ended, reason, until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="accounts of their own need root")

OLD, NEW = FIRST_UID + 1, FIRST_UID + 2
PROGRAM = """
import os, evenkeel
open(os.path.join(os.environ["EVENKEEL_ARTIFACT_DIR"], "left"), "w").write("x")
with evenkeel.training() as run:
    state = run.load() or {"seen": []}
    for step in run.steps():
        state["seen"].append(step)
        run.save(state)
"""


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="evenkeel-accounts-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o777)
        yield Path(name)


@pytest.fixture
def executor(place: Path) -> Iterator[LocalExecutor]:
    made = LocalExecutor(place / "data", "titan_xp:6", warm_start=False)
    yield made
    made.reap_orphans([], min_age_s=-2.0)


@pytest.fixture
def request_for(executor: LocalExecutor, place: Path) -> Any:
    return ExecutorContract.request_for.__wrapped__(ExecutorContract(), executor, place)  # type: ignore[attr-defined]


def job_dir(place: Path, request: LaunchRequest) -> Path:
    return place / "data" / "jobs" / request.job_id


def owners(path: Path) -> set[int]:
    return {entry.stat(follow_symlinks=False).st_uid for entry in (path, *path.rglob("*"))}


def trained(executor: LocalExecutor, request: LaunchRequest) -> LaunchRequest:
    executor.launch(request)
    assert reason(ended(executor, request.run_id, request.epoch)) == "done"
    return request


def test_what_a_moved_job_left_is_the_new_projects(executor: LocalExecutor, request_for: Any, place: Path) -> None:
    before = trained(executor, request_for(PROGRAM, project_key="vision"))
    again = request_for(PROGRAM, project_key="speech", resume_job_id=before.job_id, resume_step=20, total_steps=25)
    left = f"jobs/{before.job_id}/runs/{before.run_id}/artifacts/left"
    with pytest.raises(ExecutorError, match="Permission denied"):
        executor.launch(again)
    with pytest.raises(ExecutorError, match="Permission denied"):
        executor.discard("speech", [left])
    executor.hand_over("speech", before.job_id)
    (uid,) = owners(job_dir(place, before))
    trained(executor, dataclasses.replace(again, epoch=2))
    assert owners(job_dir(place, again)) == {uid}
    executor.discard("speech", [left])
    assert not (place / "data" / left).exists()
    with pytest.raises(ExecutorError, match="Permission denied"):
        executor.discard("vision", [f"jobs/{before.job_id}/checkpoints/step-20"])


def test_what_cannot_be_looked_at_is_not_taken_for_nothing(
    executor: LocalExecutor, request_for: Any, place: Path
) -> None:
    before = trained(executor, request_for(PROGRAM, project_key="vision"))
    wish = Preparation("artifacts", before.run_id, 1, "speech", before.job_id, OPTIONS, 60.0, 1 << 20)
    with pytest.raises(ExecutorError, match="Permission denied") as refusal:
        executor.prepare(wish)
    assert not refusal.value.permanent
    executor.hand_over("speech", before.job_id)
    executor.prepare(wish)
    found = until(lambda: (progress := executor.prepare(wish)).state == "done" and progress, "the listing")
    assert [file["path"] for file in found.detail["files"]] == ["left"]


OPTIONS = {"globs": ["**"], "max_files": 10, "max_bytes": 1 << 20}


def test_a_listing_after_a_restore_without_owners_gives_everything_back(
    executor: LocalExecutor, request_for: Any, place: Path
) -> None:
    before = trained(executor, request_for(PROGRAM))
    (uid,) = owners(job_dir(place, before))
    for path in (job_dir(place, before), *job_dir(place, before).rglob("*")):
        os.chown(path, 0, 0, follow_symlinks=False)
    wish = Preparation("artifacts", before.run_id, 1, "vision", before.job_id, OPTIONS, 60.0, 1 << 20)
    executor.prepare(wish)
    until(lambda: executor.prepare(wish).state == "done", "the listing")
    assert owners(job_dir(place, before)) == {uid}


# What may lie in a directory that others could write to


@pytest.fixture
def tree(place: Path) -> Path:
    """Of the old account, with an entry of each kind."""
    top = place / "job"
    (top / "deep" / "er").mkdir(parents=True)
    (top / "deep" / "er" / "file").write_text("x")
    os.mkfifo(top / "pipe")
    (place / "elsewhere").mkdir()
    (place / "elsewhere" / "kept").write_text("x")
    (top / "link").symlink_to(place / "elsewhere")
    (top / "file-link").symlink_to(place / "elsewhere" / "kept")
    for path in (top, *top.rglob("*"), place / "elsewhere", place / "elsewhere" / "kept"):
        os.chown(path, OLD, OLD, follow_symlinks=False)
    return top


def test_everything_changes_hands_and_no_link_is_followed(tree: Path, place: Path) -> None:
    Account(NEW).take_over(tree)
    assert owners(tree) == {NEW}
    assert owners(place / "elsewhere") == {OLD}


def test_a_file_with_a_name_elsewhere_stays_whose_it_is(tree: Path, place: Path) -> None:
    os.link(place / "elsewhere" / "kept", tree / "deep" / "taken")
    Account(NEW).take_over(tree)
    assert (place / "elsewhere" / "kept").stat().st_uid == OLD
    assert (tree / "deep" / "er" / "file").stat().st_uid == NEW


def test_what_is_anothers_stays_that_ones(tree: Path) -> None:
    os.chown(tree / "deep" / "er" / "file", 0, 0)
    Account(NEW).take_over(tree)
    assert (tree / "deep" / "er" / "file").stat().st_uid == 0
    assert (tree / "deep" / "er").stat().st_uid == NEW


def test_what_was_interrupted_is_begun_again(tree: Path) -> None:
    os.chown(tree / "deep" / "er" / "file", NEW, NEW)
    os.chown(tree / "deep" / "er", NEW, NEW)
    Account(NEW).take_over(tree)
    assert owners(tree) == {NEW}


def test_only_what_is_the_portals_own_is_adopted(tree: Path) -> None:
    Account(NEW).adopt(tree)
    assert owners(tree) == {OLD}
    for path in (tree, *tree.rglob("*")):
        os.chown(path, 0, 0, follow_symlinks=False)
    Account(NEW).adopt(tree)
    assert owners(tree) == {NEW}
    Account(NEW).adopt(tree / "missing")
