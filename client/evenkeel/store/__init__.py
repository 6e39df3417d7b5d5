"""Checkpoints in a store chosen by URL (fsspec), and data that jobs read from one: what lies there, and the process
that carries both.

docs/decisions/0015-checkpoints-in-a-store.md says who writes what, and what a crash leaves behind; docs/data.md is of
data.
"""

from __future__ import annotations

STORE_SECRET = "evenkeel.checkpoint-store"  # noqa: S105  # nosec B105 (a name)
DATA_SECRET = "evenkeel.data"  # noqa: S105  # nosec B105 (a name)

#: Of the URLs of data: protocol -> module of its driver beside fsspec; empty: none is needed.
DATA_PROTOCOLS = {
    "file": "",
    "s3": "s3fs",
    "s3a": "s3fs",
    "sftp": "paramiko",
    "ssh": "paramiko",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "abfs": "adlfs",
    "abfss": "adlfs",
    "az": "adlfs",
}

#: Modules of the usual drivers that may be missing.
DRIVERS = ("fsspec", "s3fs", "paramiko", "gcsfs", "adlfs")


class StoreError(Exception):
    """The store could not be used; the message says what was tried and what came of it."""


class TakenOver(StoreError):
    """Another launch of the job has claimed its checkpoints: this one's count no longer."""


class Denied(StoreError):
    """What was asked for is not there, or not for us: trying again changes nothing."""


class NodeFault(StoreError):
    """The node's own disk is why it failed, not the store."""


#: Between the process that carries and the one that asks.
ERRORS: dict[str, type[StoreError]] = {"taken_over": TakenOver, "denied": Denied, "node": NodeFault}


class Damaged(Exception):
    """What was read is not what its marker, or its manifest, says."""


def variable_of(name: str) -> str:
    """Of data with this name."""
    return f"EVENKEEL_DATA_{name.upper().replace('-', '_')}"


def in_words(error: Exception) -> str:
    if isinstance(error, StoreError):
        return str(error)
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:400].rstrip(": ")
