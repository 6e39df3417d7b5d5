"""Lists the files that a run left, without following links: name, size and SHA-256."""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Iterator
from itertools import islice
from typing import Any

from pathspec import GitIgnoreSpec

from evenkeel.preparation.bounded import Work
from evenkeel.runner.trees import Bounds, OutOfBounds

MAX_NAME = 500
MAX_DEPTH = 30
#: Of the entries of one directory, in no order; and of all that are looked at.
MAX_NAMES, MAX_ENTRIES = 200_000, 1_000_000
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def list_files(work: Work, options: dict[str, Any]) -> dict[str, Any]:
    """What matches the globs, within the count and the bytes that are allowed; what was left out is said."""
    wanted = GitIgnoreSpec.from_lines(options["globs"])
    root = os.open(options["root"], _DIRECTORY)
    found: list[dict[str, Any]] = []
    left_out, total = 0, 0
    try:
        for name, directory, entry in _walk(root, "", Bounds(MAX_ENTRIES, max(0.0, work.deadline - time.monotonic()))):
            if not wanted.match_file(name):
                continue
            size = _size(directory, entry)
            if size is None or len(found) >= options["max_files"] or total + size > options["max_bytes"]:
                left_out += 1
                continue
            digest = _digest(directory, entry, work.deadline)
            if digest is None:
                left_out += 1
                continue
            total += size
            found.append({"path": name, "bytes": size, "sha256": digest})
    except OutOfBounds:
        left_out += 1  # the number of further ones is unknown
    finally:
        os.close(root)
    return {"files": found, "left_out": left_out}


def _walk(directory: int, prefix: str, bounds: Bounds, depth: int = 0) -> Iterator[tuple[str, int, str]]:
    """(path, descriptor of its directory, name) of every plain file, in the order of their names."""
    with os.scandir(directory) as entries:
        names = sorted(entry.name for entry in islice(entries, MAX_NAMES))
    for name in names:
        bounds.count()
        path = prefix + name
        try:
            status = os.stat(name, dir_fd=directory, follow_symlinks=False)
        except OSError:
            continue
        if stat.S_ISREG(status.st_mode) and status.st_nlink == 1 and _printable(path):
            yield path, directory, name
        elif stat.S_ISDIR(status.st_mode) and depth < MAX_DEPTH:
            try:
                below = os.open(name, _DIRECTORY, dir_fd=directory)
            except OSError:
                continue
            try:
                yield from _walk(below, f"{path}/", bounds, depth + 1)
            finally:
                os.close(below)


def _printable(path: str) -> bool:
    return path.isprintable() and len(path) <= MAX_NAME


def _size(directory: int, name: str) -> int | None:
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False).st_size
    except OSError:
        return None


def _digest(directory: int, name: str, deadline: float) -> str | None:
    """None where the file cannot be read, or there is no time left for it."""
    digest = hashlib.sha256()
    try:
        with os.fdopen(os.open(name, _FILE, dir_fd=directory), "rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
                if time.monotonic() > deadline:
                    return None
    except OSError:
        return None
    return digest.hexdigest()
