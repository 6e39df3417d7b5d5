"""Nodes' caches for data that jobs name by URL, and the stores that all projects may read; docs/data.md lists the
variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evenkeel.store import DATA_PROTOCOLS

from portal.config import env
from portal.config.stores import read_private_object

_STORES = "EVENKEEL_DATA_STORES_FILE"


@dataclass(frozen=True, slots=True)
class DataSettings:
    cache_dir: str  # on each node, with `%n` for its name; empty: none
    cache_bytes: int  # limit for each project
    fetch_s: float
    stores: Mapping[str, Mapping[str, Any]] = field(repr=False)  # prefix of URLs -> options of the driver

    def options_for(self, url: str) -> dict[str, Any]:
        """Of the longest configured prefix, which matches whole folders only."""
        begins = [start for start in self.stores if url == start or url.startswith(f"{start}/")]
        return dict(self.stores[max(begins, key=len)]) if begins else {}


def read_data_settings(executor: str, data: Path) -> DataSettings:
    cache = env.text("EVENKEEL_DATA_CACHE_DIR", str(data / "data_cache") if executor == "local" else "")
    if cache and not Path(cache).is_absolute():
        raise env.BadSetting(f"EVENKEEL_DATA_CACHE_DIR must be an absolute path, not {cache!r}")
    return DataSettings(
        cache_dir=cache,
        cache_bytes=env.integer("EVENKEEL_DATA_CACHE_MIB") << 20,
        fetch_s=env.number("EVENKEEL_DATA_FETCH_S"),
        stores=_stores(),
    )


def _stores() -> dict[str, dict[str, Any]]:
    path = env.text(_STORES)
    if not path:
        return {}
    said = 'as {"s3://datasets": {"key": ..., "secret": ...}}'
    found = read_private_object(_STORES, Path(path), said)
    for url, options in found.items():
        if url.partition("://")[0] not in DATA_PROTOCOLS or not isinstance(options, dict):
            raise env.BadSetting(f"{_STORES} must name options by the beginning of URLs, {said}; {url!r} is no such")
    return {url.rstrip("/"): options for url, options in found.items()}
