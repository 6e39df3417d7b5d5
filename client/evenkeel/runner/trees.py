"""Removes and walks directories that a job may have made as deep and as wide as its file system allows.

Nothing here recurses, keeps a descriptor for each level or a path longer than one name, and everything is bounded in
entries and in seconds: what a bound has interrupted is continued by the next call.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

MAX_ENTRIES = 1_000_000
MAX_S = 10.0
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_ENTRY = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


class OutOfBounds(Exception):
    """So many entries or seconds as allowed are used up."""


class Bounds:
    """How much may still be looked at."""

    def __init__(self, max_entries: int = MAX_ENTRIES, max_s: float = MAX_S) -> None:
        self._left, self._until = max_entries, time.monotonic() + max_s

    def count(self) -> None:
        self._left -= 1
        if self._left < 0 or time.monotonic() > self._until:
            raise OutOfBounds


# Removing


def remove_tree(path: Path, *, max_entries: int = MAX_ENTRIES, max_s: float = MAX_S) -> bool:
    """True once nothing has this name. False: a bound was reached, and the next call continues. OSError: all that can
    be removed is, and this is why the rest cannot. Only the way to `path` may lead over links."""
    return remove_below(path.parent, (path.name,), max_entries=max_entries, max_s=max_s)


def remove_quietly(path: Path) -> None:
    """As far as it can be removed at once."""
    with contextlib.suppress(OSError):
        remove_tree(path)


def remove_below(base: Path, names: Sequence[str], *, max_entries: int = MAX_ENTRIES, max_s: float = MAX_S) -> bool:
    """As `remove_tree`; on the way from `base` no link is followed, and what is behind one is not there."""
    current = -1
    try:
        current = _reach(None, str(base))
        for name in names[:-1]:
            below = _reach(current, name)
            os.close(current)
            current = below
        return _remove_entry(current, names[-1], Bounds(max_entries, max_s))
    except OutOfBounds:
        return False
    except OSError as error:
        if error.errno in _GONE:
            return True
        raise
    finally:
        if current >= 0:
            os.close(current)


def _open_ours(above: int, name: str) -> int:
    """A descriptor of the directory to read it by."""
    entry = _reach(above, name)
    try:
        return os.open(f"/proc/self/fd/{entry}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    finally:
        os.close(entry)


def _reach(above: int | None, name: str) -> int:
    """A descriptor of the directory, which its owner may read, search and change whatever the job made of its mode."""
    entry = os.open(name, _ENTRY if above is None else _ENTRY | os.O_NOFOLLOW, dir_fd=above)
    if os.fstat(entry).st_mode & 0o700 != 0o700:
        with contextlib.suppress(PermissionError):  # another's
            os.chmod(f"/proc/self/fd/{entry}", 0o700)  # noqa: PTH101 - a descriptor, not a path
    return entry


def _remove_entry(above: int, name: str, bounds: Bounds) -> bool:
    if _remove_simple(above, name):
        return True
    top = _open_ours(above, name)
    try:
        _Removal(top, bounds).empty()
    finally:
        os.close(top)
    return _remove_simple(above, name)


def _remove_simple(above: int, name: str) -> bool:
    """What is no directory, or an empty one; False for a directory with something in it."""
    try:
        os.unlink(name, dir_fd=above)
    except FileNotFoundError:
        return True
    except IsADirectoryError:
        return _remove_empty(above, name)
    return True


def _remove_empty(above: int, name: str) -> bool:
    try:
        os.rmdir(name, dir_fd=above)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        return False
    return True


class _Removal:
    """Empties `top`. A directory below that holds directories hands them up to `top` and goes: however deep the tree
    was, nothing is ever two levels deep once it is looked at."""

    def __init__(self, top: int, bounds: Bounds) -> None:
        self._top, self._bounds = top, bounds
        self._mark, self._moved = f".removed-{secrets.token_hex(8)}-", 0
        self._progress = False

    def empty(self) -> None:
        """Passes over what is there until nothing is, or nothing more can be removed."""
        while True:
            self._progress = False
            error = self._pass(self._top, self._empty_below)
            if self._progress:
                continue
            if error is not None:
                raise error
            return

    def _pass(self, directory: int, otherwise: Callable[[int, str], None]) -> OSError | None:
        """Once over all entries; `otherwise` is for directories that are not empty. The first of what went wrong."""
        first: OSError | None = None
        with os.scandir(directory) as entries:
            for entry in entries:
                self._bounds.count()
                try:
                    if not _remove_simple(directory, entry.name):
                        otherwise(directory, entry.name)
                    self._progress = True
                except FileNotFoundError:
                    self._progress = True
                except OSError as error:
                    first = first or error
        return first

    def _empty_below(self, directory: int, name: str) -> None:
        below = _open_ours(directory, name)
        try:
            error = self._pass(below, self._hand_up)
        finally:
            os.close(below)
        if error is not None:
            raise error
        os.rmdir(name, dir_fd=directory)

    def _hand_up(self, directory: int, name: str) -> None:
        self._moved += 1
        new = f"{self._mark}{self._moved}"
        try:
            os.rename(name, new, src_dir_fd=directory, dst_dir_fd=self._top)
        except PermissionError:  # to move a directory is to change it
            os.close(_open_ours(directory, name))
            os.rename(name, new, src_dir_fd=directory, dst_dir_fd=self._top)


# Walking


@dataclass(frozen=True, slots=True)
class _Level:
    device: int
    inode: int
    todo: list[str]


def walk(
    top: int,
    bounds: Bounds,
    visit: Callable[[int, str], bool],
    leave: Callable[[int], None] = lambda directory: None,
    *,
    strict: bool = True,
) -> None:
    """`visit(directory, name)` for all entries below `top`, which says whether that one is to be entered;
    `leave(directory)` once all below it was visited, for `top` too. Raises OutOfBounds, OSError where a directory was
    moved meanwhile and, if `strict`, where one cannot be read."""
    current = os.dup(top)
    try:
        levels = [_look(current, bounds, visit)]
        while levels:
            if levels[-1].todo:
                below = _descend(current, levels[-1].todo.pop(), strict)
                if below is not None:
                    os.close(current)
                    current = below
                    levels.append(_look(current, bounds, visit))
                continue
            leave(current)
            levels.pop()
            if levels:
                below, current = current, _ascend(current, levels[-1])
                os.close(below)
    finally:
        os.close(current)


def _ascend(directory: int, level: _Level) -> int:
    """The owner of the directory may have moved it: then its parent is not the one that we came from."""
    above = os.open("..", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
    found = os.fstat(above)
    if (found.st_dev, found.st_ino) != (level.device, level.inode):
        os.close(above)
        raise OSError(errno.ESTALE, "a directory was moved while it was looked through")
    return above


def _look(directory: int, bounds: Bounds, visit: Callable[[int, str], bool]) -> _Level:
    found, todo = os.fstat(directory), list[str]()
    with os.scandir(directory) as entries:
        for entry in entries:
            bounds.count()
            if visit(directory, entry.name):
                todo.append(entry.name)
    return _Level(found.st_dev, found.st_ino, todo)


def _descend(directory: int, name: str, strict: bool) -> int | None:
    try:
        return os.open(name, _DIRECTORY, dir_fd=directory)
    except OSError as error:
        if strict and error.errno not in _GONE:
            raise
        return None
