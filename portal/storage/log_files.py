"""Bounded reads of workers' logs: DATA/jobs/<job>/runs/<run>/<epoch>/logs/rank<k>.log, with its rotated parts.

Everything below jobs/<job> belongs to the project's account, so nothing there is trusted: no link is followed, only
plain files with one name are read, and no read is larger than requested.

Offsets count bytes over all launches of the run in their order, oldest part first. When rotation drops the oldest part,
the offsets of the rest decrease.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from uuid import UUID

from django.db.models import Count

from portal.jobs.models import Hold, Run
from portal.storage.log_text import Chunk, chunk_of, search_of, search_tail_of, tail_of, whole_size

MAX_BYTES = 1024 * 1024
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MAX_AGE = 9  # of a rotated part's suffix
#: The newest launches of a run that are read, and the most names that are searched for them.
MAX_LAUNCHES, MAX_NAMES = 100, 1_000
#: For a run without known GPUs.
DEFAULT_WORKERS, MAX_WORKERS = 64, 4_096


@dataclass(frozen=True, slots=True)
class Part:
    epoch: int
    name: str
    size: int
    inode: int


@dataclass(frozen=True, slots=True)
class Written:
    """Which files a run can have written: launches (0: unknown), and workers of each."""

    launches: int = 0
    workers: int = DEFAULT_WORKERS


def written_by(run_id: UUID) -> Written:
    launches = Run.objects.values_list("epoch", flat=True).get(pk=run_id)
    held = Hold.objects.filter(run=run_id).values("epoch").annotate(count=Count("pk")).order_by("-count")
    workers = held.values_list("count", flat=True).first()
    return Written(launches, min(workers or DEFAULT_WORKERS, MAX_WORKERS))


class RunLog:
    """The present log of one rank of a run. `written`: how many files there can be, by the run's row."""

    def __init__(self, files: Path, job_id: UUID, run_id: UUID, rank: int, written: Written | None = None) -> None:
        self._files = files
        self._where = ("jobs", str(job_id), "runs", str(run_id))
        self.rank, self._written = rank, written or Written()
        ranks: set[int] = set()
        parts: list[Part] = []
        with open_directory(files, self._where) as run:
            for epoch in self._epochs(run):
                with open_directory_below(run, (str(epoch), "logs")) as logs:
                    missing = (one for one in range(self._written.workers) if one not in ranks)
                    ranks.update(one for one in missing if _is_plain(logs, f"rank{one}.log"))
                    parts[:0] = self._find(logs, epoch)
        self.ranks = sorted(ranks | {rank} if parts else ranks)
        self.parts = parts
        self.size = sum(part.size for part in self.parts)

    def _epochs(self, run: int | None) -> list[int]:
        """Newest first. The directory, in which jobs may create more, is only listed if the row has no number."""
        if last := self._written.launches:
            return list(range(last, max(0, last - MAX_LAUNCHES), -1))
        found = {int(name) for name in _names(run, MAX_NAMES) if name.isascii() and name.isdecimal() and len(name) < 10}
        return sorted(found, reverse=True)[:MAX_LAUNCHES]

    def _find(self, logs: int | None, epoch: int) -> list[Part]:
        """Readable parts of this rank, oldest first."""
        if self.rank >= self._written.workers:
            return []
        named = ((name, _status(logs, name)) for name in _part_names(self.rank))
        return [Part(epoch, name, status.st_size, status.st_ino) for name, status in named if status is not None]

    def read(self, offset: int, limit: int) -> bytes:
        """Up to `limit` bytes from `offset`; fewer at the end, or if a part has just been rotated away."""
        data, start = b"", 0
        for part in self.parts:
            wanted = min(limit - len(data), start + part.size - max(offset, start))
            if wanted > 0:
                data += self._read_part(part, max(0, offset - start), wanted)
            start += part.size
        return data

    def open_part(self, part: Part) -> int | None:
        """A descriptor of the part, under its present name; None if it is gone."""
        with open_directory(self._files, (*self._where, str(part.epoch), "logs")) as logs:
            for name in (part.name, *_part_names(self.rank)):
                file = open_file(logs, name)
                if file is not None and os.fstat(file).st_ino == part.inode:
                    return file
                if file is not None:
                    os.close(file)
        return None

    def _read_part(self, part: Part, offset: int, count: int) -> bytes:
        file = self.open_part(part)
        if file is None:
            return b""
        try:
            return os.pread(file, count, offset)
        finally:
            os.close(file)

    def chunk(self, offset: int, limit: int, *, growing: bool = False) -> Chunk:
        """A range as text, without an incomplete last character of a growing log."""
        return chunk_of(self.read, whole_size(self.read, self.size) if growing else self.size, offset, limit)

    def tail(self, lines: int, limit: int, *, growing: bool = False) -> Chunk:
        """The last lines that fit into the limit."""
        return tail_of(self.read, whole_size(self.read, self.size) if growing else self.size, lines, limit)

    def search(self, wanted: str, offset: int, limit: int) -> Chunk:
        """Lines that contain `wanted`, ignoring case; `next_offset` is where the search stopped."""
        return search_of(self.read, self.size, wanted, offset, limit)

    def search_tail(self, wanted: str, lines: int, limit: int) -> Chunk:
        """The newest matching lines."""
        return search_tail_of(self.read, self.size, wanted, lines, limit)


@contextmanager
def open_directory(files: Path, names: tuple[str, ...]) -> Iterator[int | None]:
    """A descriptor reached from a cluster's folder without following links; None if there is no such directory."""
    try:
        base = os.open(files, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:  # nothing has run there yet
        yield None
        return
    try:
        with open_directory_below(base, names) as found:
            yield found
    finally:
        os.close(base)


@contextmanager
def open_directory_below(base: int | None, names: tuple[str, ...]) -> Iterator[int | None]:
    if base is None:
        yield None
        return
    current = os.dup(base)
    try:
        for name in names:
            try:
                following = os.open(name, _DIRECTORY, dir_fd=current)
            except OSError:
                yield None
                return
            os.close(current)
            current = following
        yield current
    finally:
        os.close(current)


def _part_names(rank: int) -> list[str]:
    """Oldest first."""
    return [*(f"rank{rank}.log.{age}" for age in range(_MAX_AGE, -1, -1)), f"rank{rank}.log"]


def _names(directory: int | None, most: int) -> list[str]:
    if directory is None:
        return []
    with os.scandir(directory) as entries:
        return [entry.name for entry in islice(entries, most)]


def _is_plain(directory: int | None, name: str) -> bool:
    if directory is None:
        return False
    try:
        found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_nlink == 1


def open_file(directory: int | None, name: str) -> int | None:
    if directory is None:
        return None
    try:
        file = os.open(name, _FILE, dir_fd=directory)
    except OSError:
        return None
    status = os.fstat(file)
    if stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
        return file
    os.close(file)
    return None


def _status(directory: int | None, name: str) -> os.stat_result | None:
    file = open_file(directory, name)
    if file is None:
        return None
    try:
        return os.fstat(file)
    finally:
        os.close(file)
