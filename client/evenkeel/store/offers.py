"""What a node can give jobs: data of URLs (the drivers that are installed, and its cache), and the site's software."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from evenkeel.runner.software import installed
from evenkeel.store import DATA_PROTOCOLS


def offers(cache_dir: str, node: str) -> dict[str, Any]:
    """`cache`: empty where there is none; `free_mib`: of the disk that it is, or would be, on."""
    lacking = {module for module in DATA_PROTOCOLS.values() if module and find_spec(module) is None}
    there = find_spec("fsspec") is not None
    found: dict[str, Any] = {
        "urls": [protocol for protocol, module in DATA_PROTOCOLS.items() if there and module not in lacking],
        "missing": sorted(lacking) if there else ["fsspec"],
        "cache": cache_dir.replace("%n", node),
        "software": installed(),
    }
    if cache_dir:
        place = Path(found["cache"])
        try:
            above = next(folder for folder in (place, *place.parents) if folder.exists())
            found["free_mib"] = shutil.disk_usage(above).free >> 20
        except OSError as error:
            found["problem"] = str(error)
    return found
