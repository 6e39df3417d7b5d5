"""What a node says of the data that it can have (evenkeel.store.offers), as findings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from scheduling.executors.base import Finding

ROOM_MIB = 1_024  # less free room than this is no cache


def data_findings(said: Mapping[str, Any], where: str = "") -> Iterator[Finding]:
    """`where`: what stands before the subjects."""
    seen = ", ".join(f"{protocol}://" for protocol in said["urls"]) or "none"
    missing = f"; not installed: {', '.join(said['missing'])}" if said["missing"] else ""
    yield Finding(f"{where}data by URL", True, seen + missing)
    if not said["cache"]:
        yield Finding(
            f"{where}data cache", True, "none: jobs cannot name data by URL until EVENKEEL_DATA_CACHE_DIR is set"
        )
        return
    free_mib = said.get("free_mib", 0)
    room = said.get("problem") or f"{free_mib:,} MiB are free"
    fix = "make room there, or set EVENKEEL_DATA_CACHE_DIR to a larger disk"
    yield Finding(f"{where}data cache", free_mib >= ROOM_MIB, f"{said['cache']}: {room}", fix)
