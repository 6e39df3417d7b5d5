"""What lies in a store: `PREFIX/step-<n>-<id>/` with the files of a checkpoint, and `complete.json`, written last.

`<id>` is the head of the manifest's SHA-256, so that a directory never changes once it is complete, and a checkpoint
written anew at the same step is another directory. One without a marker that can be read does not exist.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evenkeel.runner.files import create_private, open_plain, parse_json
from evenkeel.runner.trees import remove_tree
from evenkeel.sdk.checkpoints import MANIFEST, STATE_FILE, sync
from evenkeel.store import Damaged, StoreError, TakenOver

MARKER = "complete.json"
OWNER = "owner.json"
CHUNK = 4 << 20
MAX_MANIFEST = 64 * 1024
_NAME = re.compile(r"step-([0-9]+)-([0-9a-f]{12})")
_FILES = frozenset({MANIFEST, *STATE_FILE.values()})
#: Drivers of which a directory is there as soon as something lies in it.
_OBJECT_STORES = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oss", "oci", "hf"})
_S3_DEFAULTS = {"connect_timeout": 5, "read_timeout": 30, "retries": {"max_attempts": 2}}


@dataclass(frozen=True, slots=True)
class Stored:
    """One complete checkpoint in the store."""

    step: int
    id: str
    files: tuple[tuple[str, int, str], ...]  # name, bytes, SHA-256
    written_at: float

    @property
    def bytes(self) -> int:
        return sum(size for _, size, _ in self.files)


class Store:
    """`url` with the driver's `options`; everything below `prefix` is one job's. Raises whatever the driver does."""

    def __init__(self, url: str, options: Mapping[str, Any], prefix: str, tell: Callable[[int], None] = lambda _: None):
        protocol, self._fs, self._root = open_driver(url, options)
        self._flat = protocol in _OBJECT_STORES
        self._base = f"{self._root}/{prefix}" if prefix else self._root
        self.tell = tell  # of bytes carried or looked at: a sign of life

    def of(self, prefix: str) -> Store:
        """The same store, another job's part of it."""
        other = object.__new__(Store)
        other._flat, other._fs, other._root, other.tell = self._flat, self._fs, self._root, self.tell
        other._base = f"{self._root}/{prefix}"
        return other

    # Who may write

    def claim(self, owner: Mapping[str, Any]) -> None:
        """From here on this launch is the one whose checkpoints count."""
        self._write(f"{self._base}/{OWNER}", json.dumps({**owner, "at": time.time()}).encode())

    def is_claimed_by(self, owner: Mapping[str, Any]) -> bool:
        found = self._read_json(f"{self._base}/{OWNER}")
        return found is not None and all(found.get(name) == value for name, value in owner.items())

    # What there is

    def complete(self) -> Iterator[Stored]:
        """Newest first; each marker is read when its turn comes."""
        by_step: dict[int, list[str]] = {}
        for name, step in self._names():
            by_step.setdefault(step, []).append(name)
        for step in sorted(by_step, reverse=True):
            found = [one for name in by_step[step] if (one := self._marked(name))]
            yield from sorted(found, key=lambda one: one.written_at, reverse=True)

    def _names(self) -> list[tuple[str, int]]:
        names = (path.rstrip("/").rpartition("/")[2] for path in self._ls(self._base))
        return [(match[0], int(match[1])) for name in names if (match := _NAME.fullmatch(name))]

    def _marked(self, name: str) -> Stored | None:
        self.tell(0)
        content = self._read_json(f"{self._base}/{name}/{MARKER}")
        try:
            return _stored(content, name) if content else None
        except (KeyError, TypeError, ValueError):
            return None

    # Carrying

    def upload(self, place: Path, owner: Mapping[str, Any]) -> Stored:
        """The checkpoint in `place`. Raises Damaged where it is not what its manifest says, StoreError where another
        launch has taken the job over. Files that are removed meanwhile were opened before."""
        with open_plain(place / MANIFEST) as file:
            manifest = file.read(MAX_MANIFEST)
        step, state_name, wanted = _parsed_manifest(manifest)
        with open_plain(place / state_name) as state:
            name = f"step-{step}-{manifest_id(manifest)}"
            if (known := self._marked(name)) is not None:
                return known
            target = f"{self._base}/{name}"
            size, digest = self._send(state, f"{target}/{state_name}")
        if digest != wanted:
            self._remove_tree(target)
            raise Damaged(f"checkpoint step {step} on this node is damaged, its checksum differs")
        self._write(f"{target}/{MANIFEST}", manifest)
        files = ((state_name, size, digest), (MANIFEST, len(manifest), hashlib.sha256(manifest).hexdigest()))
        for file_name, length, _ in files:
            if (there := int(self._fs.size(f"{target}/{file_name}"))) != length:
                raise StoreError(f"{file_name} of step {step} has {there} of {length} bytes in the store")
        if not self.is_claimed_by(owner):
            raise TakenOver("another launch of the job has taken its checkpoints over")
        made = Stored(step, manifest_id(manifest), files, time.time())
        named = [{"name": file_name, "bytes": length, "sha256": sha} for file_name, length, sha in files]
        marker = {"step": step, "id": made.id, "files": named, "written_at": made.written_at, **owner}
        self._write(f"{target}/{MARKER}", json.dumps(marker).encode())
        return made

    def _send(self, source: Any, target: str) -> tuple[int, str]:
        digest, size = hashlib.sha256(), 0
        self._make_parents(target)
        with self._fs.open(target, "wb") as out:
            while chunk := source.read(CHUNK):
                out.write(chunk)
                digest.update(chunk)
                size += len(chunk)
                self.tell(size)
        return size, digest.hexdigest()

    def fetch(self, stored: Stored, directory: Path) -> None:
        """Into `directory/step-<n>`, which is there whole or not at all. Raises Damaged where a hash differs."""
        draft = directory / f".draft-{stored.step}-fetched"
        with contextlib.suppress(FileNotFoundError):
            remove_tree(draft)
        draft.mkdir(mode=0o700, parents=True)
        try:
            for name, size, sha in stored.files:
                self._receive(f"{self._base}/step-{stored.step}-{stored.id}/{name}", draft / name, size, sha)
            sync(draft)
            publish(draft, directory / f"step-{stored.step}")
        finally:
            with contextlib.suppress(FileNotFoundError):
                remove_tree(draft)

    def _receive(self, source: str, target: Path, size: int, sha: str) -> None:
        digest, got = hashlib.sha256(), 0
        try:
            reading = self._fs.open(source, "rb")
        except FileNotFoundError:
            raise Damaged(f"{target.name} is missing in the store") from None
        with reading, os.fdopen(create_private(target), "wb") as out:
            while got <= size and (chunk := reading.read(CHUNK)):
                out.write(chunk)
                digest.update(chunk)
                got += len(chunk)
                self.tell(got)
            out.flush()
            os.fsync(out.fileno())
        if got != size or digest.hexdigest() != sha:
            raise Damaged(f"{target.name} is not what was uploaded")

    # Removing

    def prune(self, keep: int, newest: Stored, damaged: Iterable[str] = ()) -> None:
        """Leaves the last `keep` complete ones up to `newest`, which itself always stays; what a killed upload left
        goes, and of later ones those that were found damaged."""
        bad, kept = set(damaged), 1
        for name, step in sorted(self._names(), key=lambda pair: pair[1], reverse=True):
            if name == f"step-{newest.step}-{newest.id}":
                continue
            if name in bad or self._marked(name) is None or (step <= newest.step and kept >= keep):
                self._remove_checkpoint(name)
            else:
                kept += step <= newest.step

    def remove(self, step: int) -> None:
        """Of that step; with the last one everything of the job."""
        names = self._names()
        for name, of_step in names:
            if of_step == step:
                self._remove_checkpoint(name)
        if all(of_step == step for _, of_step in names):
            self._remove_tree(self._base)

    def _remove_checkpoint(self, name: str) -> None:
        """The marker first: from then on it does not exist."""
        with contextlib.suppress(FileNotFoundError):
            self._fs.rm_file(f"{self._base}/{name}/{MARKER}")
        self._remove_tree(f"{self._base}/{name}")

    def _remove_tree(self, path: str) -> None:
        self.tell(0)
        with contextlib.suppress(FileNotFoundError):
            self._fs.rm(path, recursive=True)

    def bring_here(self, name: str) -> int:
        """What other prefixes of the first level hold of the job `name` comes below ours; how many checkpoints."""
        moved = 0
        for path in self._ls(self._root):
            project = path.rstrip("/").rpartition("/")[2]
            other = self.of(f"{project}/{name}")
            if other._base == self._base:
                continue
            for stored in list(other.complete()):
                if self._marked(f"step-{stored.step}-{stored.id}") is None:  # else an earlier attempt came so far
                    self._copy(other, stored)
                moved += 1
            other._remove_tree(other._base)
        return moved

    def _copy(self, other: Store, stored: Stored) -> None:
        directory = f"step-{stored.step}-{stored.id}"
        for name in [*(name for name, _, _ in stored.files), MARKER]:
            self._make_parents(f"{self._base}/{directory}/{name}")
            self._fs.cp_file(f"{other._base}/{directory}/{name}", f"{self._base}/{directory}/{name}")
            self.tell(0)

    # Trying it out

    def probe(self, size: int) -> dict[str, float]:
        """Writes, lists, reads and removes an object; bytes a second of writing and reading."""
        path, data = f"{self._base}/.doctor-{os.urandom(8).hex()}/object", os.urandom(size)
        began = time.perf_counter()
        self._write(path, data)
        written = time.perf_counter()
        try:
            found = self._fs.cat_file(path)
            read = time.perf_counter()
            if found != data:
                raise StoreError("what was read is not what was written")
            if not any(name.rstrip("/").endswith("/object") for name in self._ls(path.rpartition("/")[0])):
                raise StoreError("what was written is not listed")
        finally:
            self._remove_tree(path.rpartition("/")[0])
        return {"write": size / (written - began), "read": size / (read - written)}

    # The driver

    def _ls(self, path: str) -> list[str]:
        try:
            return list(self._fs.ls(path, detail=False))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def _make_parents(self, path: str) -> None:
        if not self._flat:
            self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)

    def _write(self, path: str, data: bytes) -> None:
        self._make_parents(path)
        self._fs.pipe_file(path, data)

    def _read_json(self, path: str) -> dict[str, Any] | None:
        """None where it is not there, or not whole."""
        try:
            text = self._fs.cat_file(path, start=0, end=MAX_MANIFEST + 1)
            content = parse_json(text) if len(text) <= MAX_MANIFEST else None
        except (FileNotFoundError, ValueError):
            return None
        return content if isinstance(content, dict) else None


def open_driver(url: str, options: Mapping[str, Any]) -> tuple[str, Any, str]:
    """Protocol, the driver's file system, and the path in it."""
    import fsspec

    protocol = fsspec.utils.get_protocol(url)
    fs, root = fsspec.core.url_to_fs(url, **_complete(protocol, options))
    return protocol, fs, root.rstrip("/")


def _complete(protocol: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Nothing is remembered between questions: others write there, too."""
    known: dict[str, Any] = {"skip_instance_cache": True, "use_listings_cache": False, **options}
    if protocol in ("s3", "s3a"):
        known["config_kwargs"] = _S3_DEFAULTS | dict(options.get("config_kwargs") or {})
    return known


def manifest_id(manifest: bytes) -> str:
    return hashlib.sha256(manifest).hexdigest()[:12]


def _parsed_manifest(manifest: bytes) -> tuple[int, str, str]:
    try:
        content = parse_json(manifest)
        return int(content["step"]), STATE_FILE[content["format"]], str(content["sha256"])
    except (ValueError, KeyError, TypeError) as error:
        raise Damaged("the manifest of a checkpoint on this node cannot be read") from error


def _stored(content: Mapping[str, Any], name: str) -> Stored:
    files = tuple((str(one["name"]), int(one["bytes"]), str(one["sha256"])) for one in content["files"])
    found = Stored(int(content["step"]), str(content["id"]), files, float(content["written_at"]))
    if name != f"step-{found.step}-{found.id}" or not {one for one, _, _ in files} <= _FILES:
        raise ValueError("a marker of something else")
    return found


def publish(draft: Path, place: Path) -> None:
    """A directory cannot be replaced in one step; what was there is set aside first."""
    if place.exists():
        old = place.with_name(f".old-{place.name}-fetched")
        with contextlib.suppress(FileNotFoundError):
            remove_tree(old)
        place.rename(old)
        draft.rename(place)
        remove_tree(old)
    else:
        draft.rename(place)
    sync(place.parent)


def digest_of(path: Path, tell: Callable[[int], None]) -> str:
    digest, size = hashlib.sha256(), 0
    with open_plain(path) as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
            tell(size := size + len(chunk))
    return digest.hexdigest()
