"""Checkpoints in a store chosen by URL (fsspec): what lies there, and the process that carries them.

docs/decisions/0015-checkpoints-in-a-store.md says who writes what, and what a crash leaves behind.
"""

from __future__ import annotations

STORE_SECRET = "evenkeel.checkpoint-store"  # noqa: S105  # nosec B105 (a name)


#: Modules of the usual drivers that may be missing.
DRIVERS = ("fsspec", "s3fs", "paramiko", "gcsfs", "adlfs")


class StoreError(Exception):
    """The store could not be used; the message says what was tried and what came of it."""


class TakenOver(StoreError):
    """Another launch of the job has claimed its checkpoints: this one's count no longer."""


class Damaged(Exception):
    """What was read is not what its marker, or its manifest, says."""
