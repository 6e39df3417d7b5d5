"""Checkpoints on disk: `step-<n>/` with `state.json` or `state.pt` and a manifest holding its SHA-256.

A checkpoint is written beside its place, synced and renamed, so a name that exists is whole; the
checksum catches what the disk did to it later.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evenkeel.sdk.state import JSON, TORCH, CheckpointError, format_of, read_state, write_state

MANIFEST = "manifest.json"
STATE_FILE = {JSON: "state.json", TORCH: "state.pt"}
_NAME = re.compile(r"step-([0-9]+)")


@dataclass(frozen=True, slots=True)
class Saved:
    step: int
    path: str
    bytes: int
    seconds: float


class CheckpointStore:
    def __init__(self, directory: Path, keep: int) -> None:
        self._directory, self._keep = directory, keep
        self._readable_checked = False
        self._damaged: set[int] = set()

    def steps(self) -> list[int]:
        """Steps that have a checkpoint, newest first; nothing is said about their health."""
        with contextlib.suppress(FileNotFoundError):
            found = (_NAME.fullmatch(place.name) for place in self._directory.iterdir())
            return sorted((int(match[1]) for match in found if match), reverse=True)
        return []

    def load_latest(self, notice: Callable[[str], None]) -> tuple[int, Any] | None:
        """Step and state of the newest checkpoint that is whole."""
        damaged: list[int] = []
        for step in self.steps():
            try:
                state = self._read(step)
            except (OSError, ValueError, KeyError, TypeError):
                damaged.append(step)
                continue
            self._damaged.update(damaged)
            if damaged:
                notice(f"checkpoint step {_listed(damaged)} is damaged, falling back to step {step}")
            return step, state
        if damaged:
            notice(f"checkpoint step {_listed(damaged)} is damaged and there is none before; starting at step 0")
        return None

    def _read(self, step: int) -> Any:
        place = self._directory / f"step-{step}"
        manifest = json.loads((place / MANIFEST).read_bytes())
        path = place / STATE_FILE[manifest["format"]]
        if sha256_of(path) != manifest["sha256"]:
            raise ValueError("checksum differs")
        try:
            return read_state(path, manifest["format"])
        except Exception as error:
            raise CheckpointError(f"checkpoint step {step} is whole but cannot be loaded: {error}") from error

    def save(self, step: int, state: Any, **about: Any) -> Saved:
        started = time.perf_counter()
        self._directory.mkdir(mode=0o750, parents=True, exist_ok=True)
        draft = self._directory / f".draft-{step}-{os.getpid()}"
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(mode=0o750)
        try:
            size = self._write_draft(draft, step, state, about)
            self._publish(draft, step)
        except OSError as error:
            raise CheckpointError(f"checkpoint step {step} could not be written: {error}") from error
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        self._prune(step)
        return Saved(step, f"step-{step}", size, time.perf_counter() - started)

    def _write_draft(self, draft: Path, step: int, state: Any, about: dict[str, Any]) -> int:
        format_name = format_of(state)
        path = draft / STATE_FILE[format_name]
        write_state(path, state, format_name)
        sync(path)
        self._check_readable(path, format_name)
        size = path.stat().st_size
        manifest = {"step": step, "format": format_name, "sha256": sha256_of(path), "bytes": size, **about}
        (draft / MANIFEST).write_text(json.dumps(manifest | {"written_at": time.time()}))
        sync(draft / MANIFEST)
        sync(draft)
        return size

    def _check_readable(self, path: Path, format_name: str) -> None:
        """The first checkpoint of a process is read back: better to learn now than at the restart
        that the program saves what loading with weights only refuses."""
        if self._readable_checked:
            return
        try:
            read_state(path, format_name)
        except Exception as error:
            raise CheckpointError(f"this state could not be loaded again: {error}") from error
        self._readable_checked = True

    def _publish(self, draft: Path, step: int) -> None:
        place = self._directory / f"step-{step}"
        if place.exists():  # a directory cannot be replaced in one step
            old = self._directory / f".old-{step}-{os.getpid()}"
            place.rename(old)
            draft.rename(place)
            shutil.rmtree(old, ignore_errors=True)
        else:
            draft.rename(place)
        sync(self._directory)

    def _prune(self, newest: int) -> None:
        """Drops what is beyond the last k, and what a killed writer left. A checkpoint beyond the newest
        was damaged, or we would have resumed from it; it must not count among the last."""
        past = [step for step in self.steps() if step <= newest and (step == newest or step not in self._damaged)]
        kept = past[: self._keep]
        for step in self.steps():
            if step not in kept:
                shutil.rmtree(self._directory / f"step-{step}", ignore_errors=True)
        for place in self._directory.iterdir():
            if place.name.startswith((".draft-", ".old-")):
                shutil.rmtree(place, ignore_errors=True)


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _listed(steps: list[int]) -> str:
    return ", ".join(map(str, steps))
