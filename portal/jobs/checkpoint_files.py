"""Whether a checkpoint's files are still there and whole, as far as that can be told without reading them through.

Everything below jobs/<job> belongs to the project's account: see portal.jobs.logs for how it is read.
"""

from __future__ import annotations

import json
import os
from uuid import UUID

from portal.jobs.logs import open_directory, open_file

_MAX_MANIFEST = 64 * 1024
_STATE_FILE = {"json": "state.json", "torch": "state.pt"}


def problem_with(job_id: UUID, step: int) -> str | None:
    """Why the checkpoint cannot be used, in words; None where nothing is wrong or nothing can be told from here."""
    with open_directory(("jobs", str(job_id))) as job:
        if job is None:
            return None  # its files are not on this machine
        with open_directory(("checkpoints", f"step-{step}"), job) as place:
            return "its files are no longer kept" if place is None else _damage(place)


def _damage(place: int) -> str | None:
    manifest_file = open_file(place, "manifest.json")
    if manifest_file is None:
        return "its files are damaged: the manifest is missing"
    with os.fdopen(manifest_file, "rb") as file:
        text = file.read(_MAX_MANIFEST)
    try:
        manifest = json.loads(text)
        name, wanted = _STATE_FILE[manifest["format"]], int(manifest["bytes"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return "its files are damaged: the manifest cannot be read"
    state = open_file(place, name)
    if state is None:
        return "its files are damaged: the state is missing"
    try:
        size = os.fstat(state).st_size
    finally:
        os.close(state)
    return None if size == wanted else f"its files are damaged: the state has {size:,} of {wanted:,} bytes"
