"""Checkpoints on disk: whole or not there whenever the writer is killed, and as many as are kept."""

from __future__ import annotations

import json
import os
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest
from evenkeel.sdk import checkpoints
from evenkeel.sdk.checkpoints import MANIFEST, CheckpointStore, sha256_of
from evenkeel.sdk.state import CheckpointError


class Killed(BaseException):
    """As by SIGKILL: nothing is tidied up."""


def kill_at(monkeypatch: pytest.MonkeyPatch, number: int) -> list[str]:
    """The process ends before its step of that number, of those that reach the disk; the steps done before."""
    done: list[str] = []
    sync, rename = checkpoints.sync, Path.rename

    def step(name: str) -> None:
        if len(done) == number:
            monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)
            raise Killed
        done.append(name)

    def syncing(path: Path) -> None:
        step(f"sync {path.name}")
        sync(path)

    def renaming(path: Path, target: Path) -> Path:
        step(f"rename to {target.name}")
        return rename(path, target)

    monkeypatch.setattr(checkpoints, "sync", syncing)
    monkeypatch.setattr(Path, "rename", renaming)
    return done


def noted() -> tuple[list[str], Any]:
    said: list[str] = []
    return said, said.append


@pytest.mark.parametrize("number", range(6))
def test_a_checkpoint_is_whole_or_not_there_wherever_its_writer_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    CheckpointStore(tmp_path, 2).save(1, {"at": 1})
    with monkeypatch.context() as patch:
        done = kill_at(patch, number)
        try:
            CheckpointStore(tmp_path, 2).save(2, {"at": 2})
        except Killed:
            assert number < 5
    said, notice = noted()
    published = "rename to step-2" in done
    assert CheckpointStore(tmp_path, 2).load_latest(notice) == ((2, {"at": 2}) if published else (1, {"at": 1}))
    assert said == []
    CheckpointStore(tmp_path, 2).save(3, {"at": 3})
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_all_is_on_the_disk_before_the_name_is_and_the_name_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = kill_at(monkeypatch, 99)
    CheckpointStore(tmp_path, 2).save(7, {"a": 1})
    draft = f".draft-7-{os.getpid()}"
    assert done == ["sync state.json", f"sync {MANIFEST}", f"sync {draft}", "rename to step-7", f"sync {tmp_path.name}"]


def test_a_checkpoint_of_the_same_step_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, 2)
    store.save(5, {"a": 1})
    store.save(5, {"a": 2})
    assert store.load_latest(print) == (5, {"a": 2})
    assert [path.name for path in tmp_path.iterdir()] == ["step-5"]


def test_the_manifest_says_what_was_written(tmp_path: Path) -> None:
    saved = CheckpointStore(tmp_path / "deep" / "er", 2).save(5, {"a": 1}, world_size=4)
    place = tmp_path / "deep" / "er" / "step-5"
    manifest = json.loads((place / MANIFEST).read_text())
    path = place / "state.json"
    assert manifest.pop("written_at") > 1.7e9
    size = path.stat().st_size
    assert manifest == {"step": 5, "format": "json", "sha256": sha256_of(path), "bytes": size, "world_size": 4}
    assert (saved.step, saved.path, saved.bytes) == (5, "step-5", size)
    assert 0 < saved.seconds < 60
    assert stat.S_IMODE(place.stat().st_mode) == 0o750


@pytest.mark.parametrize(("keep", "left"), [(1, [12]), (2, [12, 11]), (3, [12, 11, 10]), (9, [12, 11, 10, 9])])
def test_the_newest_are_kept_by_number_and_not_by_name(tmp_path: Path, keep: int, left: list[int]) -> None:
    store = CheckpointStore(tmp_path, keep)
    for step in (9, 10, 11, 12):
        store.save(step, {})
    (tmp_path / "step-x").mkdir()
    (tmp_path / "step-99.bak").mkdir()
    assert store.steps() == left


@pytest.mark.parametrize("harm", ["flipped", "cut", "no manifest", "no state", "other format"])
def test_what_is_damaged_is_passed_over_and_counts_for_nothing(tmp_path: Path, harm: str) -> None:
    store = CheckpointStore(tmp_path, 2)
    for step in (1, 2, 3):
        CheckpointStore(tmp_path, 9).save(step, {"at": step})
    place = tmp_path / "step-3"
    if harm in ("flipped", "cut"):
        content = (place / "state.json").read_bytes()
        (place / "state.json").write_bytes(content[:-1] + (b"" if harm == "cut" else b" "))
    elif harm == "other format":
        manifest = json.loads((place / MANIFEST).read_text())
        (place / MANIFEST).write_text(json.dumps(manifest | {"format": "pickle"}))
    else:
        (place / (MANIFEST if harm == "no manifest" else "state.json")).unlink()
    said, notice = noted()
    assert store.load_latest(notice) == (2, {"at": 2})
    assert said == ["checkpoint step 3 is damaged, falling back to step 2"]
    store.save(4, {"at": 4})
    assert store.steps() == [4, 2]


def test_one_beyond_the_newest_is_dropped(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, 2)
    store.save(9, {})
    store.save(5, {})
    assert store.steps() == [5]


def test_a_full_disk_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = CheckpointStore(tmp_path, 1)
    store.save(1, {"at": 1})

    def full(path: Path) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "sync", full)
        with pytest.raises(CheckpointError, match="step 2 could not be written"):
            store.save(2, {"at": 2})
    assert [path.name for path in tmp_path.iterdir()] == ["step-1"]
    assert store.load_latest(print) == (1, {"at": 1})


def test_where_nothing_was_written_there_is_nothing(tmp_path: Path) -> None:
    said, notice = noted()
    assert CheckpointStore(tmp_path / "none", 1).load_latest(notice) is None
    assert (CheckpointStore(tmp_path / "none", 1).steps(), said) == ([], [])
