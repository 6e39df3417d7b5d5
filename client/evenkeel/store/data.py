"""Data that jobs read, by fsspec URL, in a cache of the node's own: `CACHE/<key>/data`.

The key is the hash of the URL and of the listing, with sizes and what the store tells versions apart by: what changed
is other data. A download gets its name when it is whole; one run downloads, others wait for it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evenkeel.runner.trees import remove_quietly
from evenkeel.store import Denied, NodeFault, StoreError, cache, in_words
from evenkeel.store.objects import open_driver

MAX_FILES = 500_000
BATCH_FILES, BATCH_BYTES = 64, 256 << 20  # fetched together; what a failure costs at most
TELL_S = 0.5
FETCHING = ".fetching"  # locked by the one who downloads
PARTS = ".parts"  # what the driver writes to
#: What tells versions of a file apart: of the first group where the store says one, else all that it says of the other.
_TAGS = ("ETag", "etag", "generation", "md5Hash")
_TIMES = ("mtime", "ino", "LastModified", "last_modified", "updated")
#: Where asking again changes nothing. Drivers raise the system's own errors for what is not there or not for us.
_FINAL = (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError, ImportError, TypeError, ValueError)
_FINAL_NAMES = frozenset(
    {"NoCredentialsError", "PartialCredentialsError", "AuthenticationException", "BadHostKeyException"}
)
_OF_THE_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})


@dataclass(frozen=True, slots=True)
class Wish:
    """`cache`: the project's on this node, of at most `cache_bytes` (0: as many as the disk has)."""

    url: str
    options: Mapping[str, Any] = field(repr=False)
    cache: Path
    cache_bytes: int
    wait_s: float  # for another run that fetches the same


@dataclass(frozen=True, slots=True)
class Brought:
    place: str  # of the file, or of the folder
    held: str  # what must stay in the cache
    bytes: int
    files: int
    fetched_bytes: int


@dataclass(frozen=True, slots=True)
class Item:
    name: str  # below the folder
    size: int
    version: str
    source: str


class Source:
    """Raises Denied where what is asked for is not there or not for us, StoreError for what may pass."""

    def __init__(self, url: str, options: Mapping[str, Any]) -> None:
        self._url, self._endpoint = url.rstrip("/"), str(options.get("endpoint_url") or "")
        with _answers():
            self._protocol, self._fs, self._root = open_driver(url, options)
        self.is_file = False

    def items(self) -> list[Item]:
        """By name. A folder, or a single file, which is listed as the one file of a folder."""
        with _answers():
            found = self._find()
        if len(found) > MAX_FILES:
            raise Denied(f"it has {len(found):,} files, {MAX_FILES:,} are the most: pack them into archives")
        items = [self._item(path, info) for path, info in sorted(found.items()) if not path.endswith("/")]
        if not items:
            raise Denied("there is nothing below it")
        names = {item.name for item in items}
        if both := next((name for name in names for above in _above(name) if above in names), None):
            raise Denied(f"{both[:100]!r} lies below the name of another file")
        return items

    def _find(self) -> dict[str, dict[str, Any]]:
        """One listing; an object store's own, or a walk, which misses nothing that cannot be read."""
        if self._fs.async_impl:
            found = dict(self._fs.find(self._root, detail=True))
            self.is_file = set(found) == {self._root}
            if not found:
                raise FileNotFoundError(self._url)
            return found
        info = self._fs.info(self._root)
        self.is_file = info["type"] != "directory"
        if self.is_file:
            return {self._root: info}
        found, folders = dict[str, dict[str, Any]](), [self._root]
        while folders and len(found) <= MAX_FILES:  # the driver's own walk passes over folders that it may not read
            for one in self._fs.ls(folders.pop(), detail=True):
                if one["type"] == "directory":
                    folders.append(one["name"])
                else:
                    found[one["name"]] = one
        return found

    def _item(self, path: str, info: dict[str, Any]) -> Item:
        name = path.rpartition("/")[2] if self.is_file else path.removeprefix(f"{self._root}/")
        if name.startswith("/") or any(part in ("", ".", "..") for part in name.split("/")) or "\0" in name:
            raise Denied(f"{name[:100]!r} cannot be the name of a file")
        if self._protocol == "file" and info["islink"]:
            with _answers():
                target = Path(path).stat()
            if not Path(path).is_file():
                raise Denied(f"{name[:100]} is a link to a folder, which is not followed")
            info = info | {"size": target.st_size, "mtime": target.st_mtime, "ino": target.st_ino}
        elif info["type"] != "file":
            raise Denied(f"{name[:100]} is a {info['type']}, not a file")
        if info.get("size") is None:
            raise Denied(f"the store does not say how large {name[:100]} is")
        return Item(name, int(info["size"]), self._version(path, info), path)

    def _version(self, path: str, info: dict[str, Any]) -> str:
        for group in (_TAGS, _TIMES):
            if facts := [f"{name}={info[name]}" for name in group if info.get(name)]:
                return " ".join(facts)
        with _answers():
            return str(self._fs.ukey(path))

    def key_of(self, items: Sequence[Item]) -> str:
        listing = [[item.name, item.size, item.version] for item in items]
        return hashlib.sha256(json.dumps([self._url, self._endpoint, listing]).encode()).hexdigest()[:32]

    def get(self, items: Sequence[Item], targets: Sequence[Path]) -> None:
        with _answers():
            self._fs.get([item.source for item in items], [str(path) for path in targets])


def _above(name: str) -> Iterator[str]:
    while name := name.rpartition("/")[0]:
        yield name


@contextlib.contextmanager
def _answers() -> Iterator[None]:
    """What a driver raises, as what it means."""
    try:
        yield
    except StoreError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _OF_THE_DISK:
            raise NodeFault(f"the node's disk is full: {in_words(error)}") from error
        final = isinstance(error, _FINAL) or type(error).__name__ in _FINAL_NAMES
        raise (Denied if final else StoreError)(in_words(error)) from error


@contextlib.contextmanager
def _on_disk() -> Iterator[None]:
    """Our own steps in the cache."""
    try:
        yield
    except OSError as error:
        raise NodeFault(f"the data cache cannot be used: {in_words(error)}") from error


def look_at_path(path: str, *, writable: bool) -> str:
    """Whether this account can read it, and write where it shall. Raises Denied."""
    place, wanted = Path(path), os.R_OK | (os.W_OK if writable else 0)
    try:
        wanted |= os.X_OK if place.stat() and place.is_dir() else 0
    except OSError as error:
        raise Denied(f"{path}: {error.strerror or error}, on {os.uname().nodename}") from None
    if not os.access(place, wanted, effective_ids=True):
        verb = "read and write" if writable else "read"
        raise Denied(f"{path}: the job's account ({os.geteuid()}) may not {verb} it on {os.uname().nodename}")
    return path


def bring_data(wish: Wish, say: Callable[[dict[str, Any]], None]) -> tuple[Brought, int]:
    """Until it is in the cache as the store has it now; with it the descriptor that holds it there. Raises Denied,
    NodeFault, and StoreError for what may pass."""
    source = Source(wish.url, wish.options)
    items = source.items()
    place, fetched = wish.cache / source.key_of(items), 0
    with _on_disk():
        wish.cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        held = cache.use(place)
    try:
        if _missing(place / "data", items):
            with _alone(place / FETCHING, wish.wait_s, say):
                fetched = _Download(source, items, place, say).complete(wish)
    except BaseException:
        os.close(held)
        raise
    data = place / "data"
    whole = sum(item.size for item in items)
    return Brought(str(data / items[0].name if source.is_file else data), str(place), whole, len(items), fetched), held


def _missing(place: Path, items: Sequence[Item]) -> list[Item]:
    """Those that are not there with their size."""
    with _on_disk():
        return [item for item in items if _size(place / item.name) != item.size]


def _size(path: Path) -> int:
    try:
        return os.lstat(path).st_size
    except (FileNotFoundError, NotADirectoryError):
        return -1


@contextlib.contextmanager
def _alone(path: Path, wait_s: float, say: Callable[[dict[str, Any]], None]) -> Iterator[None]:
    """The kernel releases the lock when its holder exits."""
    with _on_disk():
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        give_up_at = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= give_up_at:
                    raise StoreError(f"another run has been fetching it for {wait_s:g} s") from None
            say({"waiting": True})
            time.sleep(TELL_S)
        yield
    finally:
        os.close(fd)


class _Download:
    """What an earlier one left whole is not fetched again, unless the machine went down meanwhile."""

    def __init__(
        self, source: Source, items: Sequence[Item], place: Path, say: Callable[[dict[str, Any]], None]
    ) -> None:
        self._source, self._items, self._place, self._say = source, items, place, say
        self._draft = place / f".draft-{Path('/proc/sys/kernel/random/boot_id').read_text()[:8]}"
        self._parts = place / PARTS
        self._done, self._total = 0, sum(item.size for item in items)

    def complete(self, wish: Wish) -> int:
        """How many bytes had to be fetched."""
        data = self._place / "data"
        wanted = _missing(data, self._items)
        left = _missing(self._draft, wanted)
        fetched = sum(item.size for item in left)
        self._done = self._total - fetched
        if wish.cache_bytes and self._total > wish.cache_bytes:
            raise Denied(f"it has {self._total:,} bytes, the node's cache has room for {wish.cache_bytes:,}")
        if left:
            with _on_disk():
                cache.reserve(wish.cache, self._place, wish.cache_bytes, fetched)
        for batch in _batches(left):
            self._fetch(batch)
        if left and self._source.key_of(self._source.items()) != self._place.name:
            raise StoreError("it changed while it was fetched")
        with _on_disk():
            self._publish(data, wanted)
        return fetched

    def _fetch(self, batch: Sequence[Item]) -> None:
        with _on_disk():
            remove_quietly(self._parts)
            self._parts.mkdir(mode=0o700)
        parts = [self._parts / str(number) for number in range(len(batch))]
        with self._watched(parts):
            self._source.get(batch, parts)
        for item, part in zip(batch, parts, strict=True):
            if (size := _size(part)) != item.size:
                raise StoreError(f"{item.name[:100]} has {max(size, 0):,} of {item.size:,} bytes")
            with _on_disk():
                part.chmod(0o400)
                target = self._draft / item.name
                target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                part.replace(target)
            self._done += item.size

    @contextlib.contextmanager
    def _watched(self, parts: Sequence[Path]) -> Iterator[None]:
        """Says how far it is for as long as it goes on: what stands still gives no sign of life."""
        over = threading.Event()

        def watch() -> None:
            before = -1
            while not over.wait(TELL_S):
                written = sum(_written(part) for part in parts)
                if written != before:
                    before = written
                    self._say({"bytes": min(self._done + written, self._total), "of": self._total})

        watching = threading.Thread(target=watch, daemon=True)
        self._say({"bytes": self._done, "of": self._total})
        watching.start()
        try:
            yield
        finally:
            over.set()
            watching.join()

    def _publish(self, data: Path, wanted: Sequence[Item]) -> None:
        """A file of data that others use by now is replaced in one step."""
        self._draft.mkdir(mode=0o700, exist_ok=True)
        _sync(self._draft)
        if data.exists():
            for item in wanted:
                (data / item.name).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                (self._draft / item.name).replace(data / item.name)
        else:
            self._draft.rename(data)
        for left in (*self._place.glob(".draft-*"), self._parts):
            remove_quietly(left)
        cache.unreserve(self._place)
        _sync(self._place)


def _batches(items: Sequence[Item]) -> Iterator[list[Item]]:
    batch: list[Item] = []
    for item in items:
        if batch and (len(batch) == BATCH_FILES or sum(one.size for one in batch) + item.size > BATCH_BYTES):
            yield batch
            batch = []
        batch.append(item)
    if batch:
        yield batch


def _written(path: Path) -> int:
    """A driver may make a file as large as it will be before it writes."""
    try:
        found = os.lstat(path)
    except OSError:
        return 0
    return min(found.st_size, found.st_blocks * 512)


def _sync(place: Path) -> None:
    """All that was written to this file system: files without number, once."""
    fd = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(fd):
            raise OSError(ctypes.get_errno(), "syncfs", str(place))
    finally:
        os.close(fd)
