"""Which checkpoint a launch begins with: exactly the newest complete one in the store, on every node.

Called before any worker starts. What lies on the node beyond it is either brought into the store first, where it goes
on from that very checkpoint, or removed: the job has gone on elsewhere since.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evenkeel.runner.files import open_plain, parse_json
from evenkeel.runner.reports import write_atomically
from evenkeel.runner.trees import remove_quietly, remove_tree
from evenkeel.sdk.checkpoints import MANIFEST, STATE_FILE, CheckpointStore
from evenkeel.store import Damaged, StoreError
from evenkeel.store.objects import MAX_MANIFEST, Store, Stored, digest_of, manifest_id, publish

BASE = ".store.json"  # beside the checkpoints of a node: the newest that it knows to be in the store


@dataclass(slots=True)
class Settled:
    step: int | None  # None: the job begins
    id: str = ""
    bytes: int = 0
    fetched: bool = False
    uploaded: bool = False
    damaged: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Wanted:
    """`expected_step`: the one that the portal counts on. `otherwise`: a directory of the job that may hold a
    checkpoint from before there was a store. `resume`: prefix and step of another job's."""

    owner: Mapping[str, Any]
    expected_step: int = 0
    otherwise: Path | None = None
    resume: tuple[str, int] | None = None


def settle(store: Store, directory: Path, wanted: Wanted, room: Callable[[int], None] = lambda _: None) -> Settled:
    """`room(bytes)` is called before something is fetched. Raises StoreError if the job would start from the beginning
    although it has made steps, and any error of the driver: then the state is unknown, and nothing may start."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    store.claim(wanted.owner)
    settled = Settled(None)
    newest = next(store.complete(), None)
    if newest is None:
        _bring_first(store, directory, wanted)
    local = _newest_whole(store, directory, above=newest.step if newest else -1)
    if local is not None and (newest is None or _base(directory) == newest.id):
        newest, settled.uploaded = store.upload(directory / f"step-{local}", wanted.owner), True
        settled.notices.append(f"checkpoint step {local} was on the node alone and is in the store now")
    elif local is not None:
        settled.notices.append(f"checkpoint step {local} on the node is not used: the job continued elsewhere")
    if newest is None:
        if wanted.expected_step:
            raise StoreError(
                f"no complete checkpoint is in the store, though step {wanted.expected_step} was: "
                "look for it there, or resubmit the job to start from the beginning"
            )
        return settled
    _bring_newest(store, directory, settled, room)
    if settled.step is not None and settled.step < wanted.expected_step and not settled.damaged:
        settled.notices.append(f"the newest complete checkpoint in the store is of step {settled.step}, "
                               f"not of step {wanted.expected_step}")  # fmt: skip
    return settled


def _bring_newest(store: Store, directory: Path, settled: Settled, room: Callable[[int], None]) -> None:
    steps: list[str] = []
    for stored in store.complete():
        try:
            settled.fetched = bring(store, directory, stored, room)
        except Damaged:
            settled.damaged.append(f"step-{stored.step}-{stored.id}")
            steps.append(str(stored.step))
            continue
        settled.step, settled.id, settled.bytes = stored.step, stored.id, stored.bytes
        if steps:
            text = f"checkpoint step {', '.join(steps)} in the store is damaged, falling back to step {stored.step}"
            settled.notices.append(text)
        return
    raise StoreError(f"every checkpoint in the store is damaged: step {', '.join(steps)}; resubmit the job")


def bring(store: Store, directory: Path, stored: Stored, room: Callable[[int], None] = lambda _: None) -> bool:
    """Until `stored` is the newest in `directory`, whole; True where it had to be fetched. One that does not come as it
    was uploaded is fetched once more before it counts as damaged."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    place, fetched = directory / f"step-{stored.step}", False
    if not _is(store, place, stored):
        room(stored.bytes)
        try:
            store.fetch(stored, directory)
        except Damaged:
            store.fetch(stored, directory)
        fetched = True
    for step in CheckpointStore(directory, 0).steps():
        if step > stored.step:
            remove_tree(directory / f"step-{step}")
    note_base(directory, stored)
    return fetched


def note_base(directory: Path, stored: Stored) -> None:
    write_atomically(directory / BASE, {"step": stored.step, "id": stored.id})


def _base(directory: Path) -> str | None:
    with contextlib.suppress(OSError, ValueError), open_plain(directory / BASE) as file:
        content = parse_json(file.read(MAX_MANIFEST))
        return str(content["id"]) if isinstance(content, dict) and "id" in content else None
    return None


def _newest_whole(store: Store, directory: Path, above: int) -> int | None:
    for step in CheckpointStore(directory, 0).steps():
        if step <= above:
            return None
        if _whole(store, directory / f"step-{step}"):
            return step
    return None


def _whole(store: Store, place: Path) -> bytes | None:
    """Its manifest, where the state is what that says."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        with open_plain(place / MANIFEST) as file:
            manifest = file.read(MAX_MANIFEST)
        content = parse_json(manifest)
        if digest_of(place / STATE_FILE[content["format"]], store.tell) == content["sha256"]:
            return manifest
    return None


def _is(store: Store, place: Path, stored: Stored) -> bool:
    manifest = _whole(store, place)
    return manifest is not None and manifest_id(manifest) == stored.id


def _bring_first(store: Store, directory: Path, wanted: Wanted) -> None:
    """A checkpoint of the job from before there was a store, or that of another job which it begins with."""
    if CheckpointStore(directory, 0).steps():
        return
    if wanted.otherwise is not None and wanted.otherwise != directory:
        step = _newest_whole(store, wanted.otherwise, above=-1)
        if step is not None:
            _copy(wanted.otherwise / f"step-{step}", directory)
            return
    if wanted.resume is not None:
        prefix, step = wanted.resume
        source = store.of(prefix)
        found = next((one for one in source.complete() if one.step == step), None)
        if found is None:
            raise StoreError(f"the checkpoint of step {step} to resume from is not in the store")
        try:
            source.fetch(found, directory)
        except Damaged as error:
            raise StoreError(f"the checkpoint of step {step} to resume from cannot be used: {error}") from error


def _copy(place: Path, directory: Path) -> None:
    draft = directory / f".draft-{place.name}-copied"
    remove_quietly(draft)
    shutil.copytree(place, draft)
    publish(draft, directory / place.name)
