"""What a node keeps, within a bound of bytes: checkpoints of jobs, `CACHE/<job>/`, and data, `CACHE/<key>/`. The least
recently used go first.

What is in use is locked and stays. What never reached the store goes like the rest once it is the oldest.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from evenkeel.runner.files import read_plain
from evenkeel.runner.trees import Bounds, OutOfBounds, remove_tree, walk
from evenkeel.store import StoreError

LOCK = ".lock"
RESERVED = ".reserved"  # how many bytes a directory is about to have
ROOM = ".room"  # locked during the calculation


def use(directory: Path) -> int:
    """Locks a job's directory against eviction, and notes the use; the descriptor, which the caller keeps open."""
    while True:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):  # evicted between the two
            fd = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            fcntl.flock(fd, fcntl.LOCK_SH)
            if os.fstat(fd).st_nlink:
                os.utime(fd)
                return fd
            os.close(fd)


def make_room(cache: Path, bound: int, wanted: int = 0) -> list[str]:
    """Removes jobs' directories until what is there and `wanted` bytes more are within `bound`, or all that is left is
    in use; the names of those removed."""
    found = sorted((_used_at(path), _size(path), path) for path in _directories(cache))
    total, removed = sum(size for _, size, _ in found) + wanted, list[str]()
    for _, size, path in found:
        if total <= bound:
            break
        if _remove_unused(path):
            total -= size
            removed.append(path.name)
    return removed


def reserve(cache: Path, place: Path, bound: int, wanted: int) -> None:
    """Room for `wanted` bytes more in `place`, which is in use, within `bound` (0: none) and on the disk. StoreError
    where there is none without what is in use."""
    with _reckoning(cache):
        unreserve(place)
        most = sum(map(_on_disk, _directories(cache))) + shutil.disk_usage(cache).free
        most = min(most, bound) if bound else most
        make_room(cache, most, wanted)
        left = most - sum(map(_size, _directories(cache)))
        if wanted > left:
            free = f"{max(left, 0):,} of {most:,} are not in use"
            raise StoreError(f"{wanted:,} bytes more do not fit into {cache}: {free}")
        (place / RESERVED).write_text(str(_size(place) + wanted))


def unreserve(place: Path) -> None:
    (place / RESERVED).unlink(missing_ok=True)


@contextlib.contextmanager
def _reckoning(cache: Path) -> Iterator[None]:
    fd = os.open(cache / ROOM, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)  # for as long as listing takes
        yield
    finally:
        os.close(fd)


def _directories(cache: Path) -> list[Path]:
    with contextlib.suppress(FileNotFoundError):
        return [path for path in cache.iterdir() if (path / LOCK).is_file() and not path.is_symlink()]
    return []


def _used_at(path: Path) -> float:
    with contextlib.suppress(OSError):
        return (path / LOCK).stat().st_mtime
    return 0.0


def _size(path: Path) -> int:
    """What it has, or is about to have."""
    with contextlib.suppress(OSError, ValueError):
        return max(_on_disk(path), int(read_plain(path / RESERVED, 100)))
    return _on_disk(path)


def _on_disk(path: Path) -> int:
    """As far as it can be looked through."""
    total = 0

    def visit(directory: int, name: str) -> bool:
        nonlocal total
        try:
            found = os.stat(name, dir_fd=directory, follow_symlinks=False)
        except OSError:
            return False
        if stat.S_ISDIR(found.st_mode):
            return True
        total += found.st_size
        return False

    with contextlib.suppress(OSError, OutOfBounds):
        top = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            walk(top, Bounds(), visit, strict=False)
        finally:
            os.close(top)
    return total


def _remove_unused(path: Path) -> bool:
    try:
        fd = os.open(path / LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return remove_tree(path)
    except OSError:
        return False
    finally:
        os.close(fd)
