"""Software and storage that a site offers to jobs on its nodes, and what a node reports on it (evenkeel.store.offers),
as findings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from scheduling.executors.base import EngineLimits, Finding, Software

ROOM_MIB = 1_024  # a smaller free space is no use as a cache


class SiteSoftware:
    """Mixin of executors: software of the nodes according to the site's settings."""

    _software: Software

    def limits(self) -> EngineLimits:
        """No limits of its own."""
        return EngineLimits()

    def site_shares(self) -> Mapping[tuple[str, str], float]:
        return {}

    @property
    def supports_containers(self) -> bool:
        return bool(self._software.container_tool)

    @property
    def supports_modules(self) -> bool:
        return self._software.modules


def offer_findings(said: Mapping[str, Any], software: Software, where: str = "") -> Iterator[Finding]:
    """`where`: prefix of the subjects."""
    yield from software_findings(said["software"], software, where)
    yield from _of_data(said, where)


def software_findings(installed: Mapping[str, str], software: Software, where: str = "") -> Iterator[Finding]:
    there = installed.get("modules")
    fix = "install Environment Modules or Lmod there, or unset EVENKEEL_MODULES"
    yield _of_software(f"{where}modules", software.modules, there, "EVENKEEL_MODULES=1", fix)
    tool = software.container_tool
    others = ", ".join(f"{name} {version}" for name, version in installed.items() if name != "modules")
    fix = f"install {tool} there, or set EVENKEEL_CONTAINER_TOOL to what all nodes have"
    yield _of_software(
        f"{where}images", bool(tool), installed.get(tool) if tool else others, "EVENKEEL_CONTAINER_TOOL", fix, tool
    )


def _of_software(subject: str, offered: bool, there: str | None, setting: str, fix: str, name: str = "") -> Finding:
    if offered:
        seen = f"{name}: {there}".removeprefix(": ") if there else f"{f'{name} is' if name else 'they are'} not there"
        return Finding(subject, bool(there), seen, fix)
    return Finding(subject, True, f"not offered; {there} is there: {setting} offers it" if there else "none")


def _of_data(said: Mapping[str, Any], where: str) -> Iterator[Finding]:
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
