"""Opens and reads what a job's program may have replaced by something else: a pipe would make us wait forever, and a
small file of brackets grows a hundredfold once it is parsed."""

from __future__ import annotations

import errno
import json
import math
import os
import re
import stat
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

MAX_OBJECT_BYTES = 1 << 20
MAX_NODES = 50_000
MAX_DEPTH = 50
#: One that does not end counts too, up to the end of the text: else each of its quotes would be read on from again.
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_BRACKET = re.compile(rb"[\[\]{}]")


def open_plain(path: Path) -> BinaryIO:
    """For reading; OSError for whatever is not a regular file, links included."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return os.fdopen(fd, "rb")


def create_private(path: Path) -> int:
    """For writing, as a new file that no other process has open."""
    path.unlink(missing_ok=True)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def read_plain(path: Path, max_bytes: int) -> bytes:
    """All of a regular file; OSError for anything else, and for more than `max_bytes`, of which little is read."""
    with open_plain(path) as file:
        size_bytes = os.fstat(file.fileno()).st_size
        content = file.read(max_bytes + 1) if size_bytes <= max_bytes else b""
    if size_bytes > max_bytes or len(content) > max_bytes:  # it may have grown meanwhile
        raise OSError(errno.EFBIG, f"has more than the {max_bytes:,} bytes that it may have", str(path))
    return content


def exists(path: Path) -> bool:
    """Whether something has this name; False also where the job has closed the way to it."""
    try:
        path.lstat()
    except (OSError, ValueError):
        return False
    return True


def read_object(
    path: Path, max_bytes: int = MAX_OBJECT_BYTES, max_nodes: int = MAX_NODES, *, nan_as_null: bool = False
) -> dict[str, Any] | None:
    """A JSON object from a directory that belongs to a user; None when it is not there or is not one."""
    try:
        content = parse_json(read_plain(path, max_bytes), max_nodes, nan_as_null=nan_as_null)
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def parse_json(text: bytes, max_nodes: int = MAX_NODES, *, nan_as_null: bool = False) -> Any:
    """Its values, of which there may be `max_nodes`, nested MAX_DEPTH deep; looked at before anything is built of
    them. ValueError for anything else, and for numbers that are none, unless those become null."""
    _check_shape(text, max_nodes)
    return json.loads(
        text, parse_constant=_null if nan_as_null else _refuse, parse_float=_lenient if nan_as_null else _finite
    )


def _check_shape(text: bytes, max_nodes: int) -> None:
    plain = _STRING.sub(b"", text)
    if sum(map(plain.count, (b",", b"[", b"{"))) > max_nodes:
        raise ValueError(f"more than {max_nodes:,} values")
    depth = 0
    for bracket in _BRACKET.finditer(plain):
        depth += 1 if bracket[0] in b"[{" else -1
        if depth > MAX_DEPTH:
            raise ValueError(f"nested more than {MAX_DEPTH} deep")
        if depth < 0:
            raise ValueError("closes more brackets than it opens")


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


def _null(name: str) -> None:
    return None


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse(text)


def _lenient(text: str) -> float | None:
    number = float(text)
    return number if math.isfinite(number) else None
