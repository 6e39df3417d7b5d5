"""Bounded reads of what workers wrote: DATA/jobs/<job>/runs/<run>/<epoch>/logs/rank<k>.log, with its rotated parts.

Everything below jobs/<job> belongs to the project's account, so nothing there is trusted: no link is followed,
only plain files with one name are read, and nothing read is larger than was asked for.

Offsets count bytes over all launches of the run in their order, oldest part first. When rotation drops the
oldest part, what is left moves towards 0.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from portal.jobs.log_text import Chunk, chunk_of, search_of, search_tail_of, tail_of, whole_size

MAX_BYTES = 1024 * 1024
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NAME = re.compile(r"rank([0-9]{1,6})\.log(?:\.([0-9]))?")


@dataclass(frozen=True, slots=True)
class Part:
    epoch: int
    name: str
    size: int
    inode: int


class RunLog:
    """The log of one rank of a run, as it is now."""

    def __init__(self, files: Path, job_id: UUID, run_id: UUID, rank: int) -> None:
        self._files = files
        self._where = ("jobs", str(job_id), "runs", str(run_id))
        self.rank = rank
        found = sorted(self._find(), key=lambda entry: entry[:3])
        self.ranks = sorted({entry[1] for entry in found})
        self.parts = [part for _, of_rank, _, part in found if of_rank == rank]
        self.size = sum(part.size for part in self.parts)

    def _find(self) -> Iterator[tuple[int, int, int, Part]]:
        """(epoch, rank, age as a negative number, part) of every readable part."""
        with open_directory(self._files, self._where) as run:
            for epoch in sorted(
                int(name) for name in _names(run) if name.isascii() and name.isdecimal() and len(name) < 10
            ):
                with open_directory_below(run, (str(epoch), "logs")) as logs:
                    for name in _names(logs):
                        match = _NAME.fullmatch(name)
                        status = _status(logs, name) if match else None
                        if match and status is not None:
                            part = Part(epoch, name, status.st_size, status.st_ino)
                            yield epoch, int(match[1]), -int(match[2] or 0), part

    def read(self, offset: int, limit: int) -> bytes:
        """Up to `limit` bytes from `offset`; less at the end, or where a part has just been rotated away."""
        data, start = b"", 0
        for part in self.parts:
            wanted = min(limit - len(data), start + part.size - max(offset, start))
            if wanted > 0:
                data += self._read_part(part, max(0, offset - start), wanted)
            start += part.size
        return data

    def open_part(self, part: Part) -> int | None:
        """A descriptor of the part, under whichever name it has by now; None where it is gone."""
        with open_directory(self._files, (*self._where, str(part.epoch), "logs")) as logs:
            for name in (part.name, *_names(logs)):
                file = open_file(logs, name) if _NAME.fullmatch(name) else None
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
        """A range as text; of one that grows without a character that is written in part."""
        return chunk_of(self.read, whole_size(self.read, self.size) if growing else self.size, offset, limit)

    def tail(self, lines: int, limit: int, *, growing: bool = False) -> Chunk:
        """The last lines, as far as they fit into the limit."""
        return tail_of(self.read, whole_size(self.read, self.size) if growing else self.size, lines, limit)

    def search(self, wanted: str, offset: int, limit: int) -> Chunk:
        """Lines with `wanted` in them, any case; `next_offset` is how far was looked."""
        return search_of(self.read, self.size, wanted, offset, limit)

    def search_tail(self, wanted: str, lines: int, limit: int) -> Chunk:
        """The last matching lines of what was written latest."""
        return search_tail_of(self.read, self.size, wanted, lines, limit)


@contextmanager
def open_directory(files: Path, names: tuple[str, ...]) -> Iterator[int | None]:
    """A descriptor reached from a cluster's folder without following a link; None where there is no such directory."""
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


def _names(directory: int | None) -> list[str]:
    return os.listdir(directory) if directory is not None else []  # noqa: PTH208 - a descriptor, not a path


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
