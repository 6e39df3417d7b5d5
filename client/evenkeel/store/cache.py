"""The checkpoints of jobs on a node, `CACHE/<job>/`, within a bound of bytes: the least recently used job's go first.

What is in use is locked and stays. What never reached the store goes like the rest once it is the oldest.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from pathlib import Path

LOCK = ".lock"


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


def _directories(cache: Path) -> list[Path]:
    with contextlib.suppress(FileNotFoundError):
        return [path for path in cache.iterdir() if (path / LOCK).is_file() and not path.is_symlink()]
    return []


def _used_at(path: Path) -> float:
    with contextlib.suppress(OSError):
        return (path / LOCK).stat().st_mtime
    return 0.0


def _size(path: Path) -> int:
    total = 0
    for place, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(place, name)).st_size  # noqa: PTH118
    return total


def _remove_unused(path: Path) -> bool:
    try:
        fd = os.open(path / LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path, ignore_errors=True)
        return not path.exists()
    except OSError:
        return False
    finally:
        os.close(fd)
