"""Whether the storage for jobs is writable."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from scheduling.executors.base import Finding

_PROBE = os.urandom(4096)


def can_be_written(directory: Path) -> Finding:
    """Checked with a file that is written, flushed to the device, read again and removed."""
    fix = f"mount {directory}, make room there, or correct its owner and mode"
    try:
        with tempfile.NamedTemporaryFile(prefix=".check-", dir=directory) as file:
            file.write(_PROBE)
            file.flush()
            os.fsync(file.fileno())
            same = Path(file.name).read_bytes() == _PROBE
    except OSError as error:
        return Finding("job directory", False, f"{directory} cannot be written: {error.strerror or error}", fix)
    return Finding("job directory", same, "can be written" if same else f"{directory} returns other bytes", fix)


def free_space(directory: Path, min_free_mib: int) -> Finding:
    try:
        free_mib = shutil.disk_usage(directory).free // 2**20
    except OSError as error:
        return Finding("free space", False, f"of {directory} is not known: {error.strerror or error}", "mount it")
    fix = f"make room in {directory}"
    return Finding(
        "free space", free_mib >= min_free_mib, f"{free_mib:,} MiB, at least {min_free_mib:,} are to be", fix
    )
