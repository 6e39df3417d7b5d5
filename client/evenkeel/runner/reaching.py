"""What a job's account on this node can reach of the portal, which it should not."""

from __future__ import annotations

import os
import pwd
import socket
from collections.abc import Mapping, Sequence
from typing import Any

TIMEOUT_S = 2.0


def reached(kept: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """`kept`: `files` that no job may read, `sockets` it may not connect to, and `programs`, each with its inode and
    time of change in ns, which it may not write: another file of that name may be the node's own."""
    return {
        "account": account(),
        "read": [path for path in kept.get("files", ()) if _reads(path)],
        "connect to": [path for path in kept.get("sockets", ()) if _connects(path)],
        "change": [path for path, *which in kept.get("programs", ()) if _writes(path, which)],
    }


def account() -> str:
    uid = os.geteuid()
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"account {uid}"


def _reads(path: str) -> bool:
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def _connects(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(TIMEOUT_S)
        try:
            probe.connect(path)
        except OSError:
            return False
    return True


def _writes(path: str, which: Sequence[int]) -> bool:
    try:
        found = os.stat(path)  # noqa: PTH116
    except OSError:
        return False
    return [found.st_ino, found.st_mtime_ns] == list(which) and os.access(path, os.W_OK, effective_ids=True)
