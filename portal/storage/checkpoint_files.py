"""Whether a checkpoint's files are still present and complete, as far as can be checked without reading them.

With a checkpoint store, the files in the store count.

Everything below jobs/<job> belongs to the project's account: see portal.storage.log_files for how it is read.
"""

from __future__ import annotations

import logging
import os

from django.core.cache import cache
from evenkeel.runner.files import parse_json
from evenkeel.store import StoreError

from portal.jobs.clusters import files_of
from portal.jobs.models import Job
from portal.storage import checkpoints
from portal.storage.log_files import open_directory, open_directory_below, open_file

logger = logging.getLogger(__name__)

_REMEMBERED_S = 5
_MAX_MANIFEST = 64 * 1024
_STATE_FILE = {"json": "state.json", "torch": "state.pt"}


def problem_with(job: Job, step: int) -> str | None:
    """Why the checkpoint cannot be used, in words; None if it is fine or cannot be checked from here."""
    if checkpoints.configured(job.cluster_id) is None:
        return _problem_here(job, step)
    stored = _in_store(job)
    if stored is None or step in stored:
        return None
    return "it is not in the store" if _problem_here(job, step, absent="") is not None else None


def _in_store(job: Job) -> list[int] | None:
    """Steps of the job's complete checkpoints in the store, at most a few seconds old; None if it does not answer."""
    key = f"checkpoint-store:{job.pk}"
    found: dict[str, list[int] | None] | None = cache.get(key)
    if found is None:
        found = {"steps": None}
        try:
            found["steps"] = list(checkpoints.steps_of(job))
        except StoreError as error:
            logger.warning("checkpoints of job %s: %s", job.pk, error)
        cache.set(key, found, _REMEMBERED_S)
    return found["steps"]


def _problem_here(job: Job, step: int, absent: str | None = None) -> str | None:
    """`absent`: the problem if the job has no files on this machine."""
    with open_directory(files_of(job.cluster_id), ("jobs", str(job.pk))) as files:
        if files is None:
            return absent
        with open_directory_below(files, ("checkpoints", f"step-{step}")) as place:
            return "its files are no longer kept" if place is None else _damage(place)


def _damage(place: int) -> str | None:
    manifest_file = open_file(place, "manifest.json")
    if manifest_file is None:
        return "its files are damaged: the manifest is missing"
    with os.fdopen(manifest_file, "rb") as file:
        text = file.read(_MAX_MANIFEST)
    try:
        manifest = parse_json(text)
        name, wanted = _STATE_FILE[manifest["format"]], manifest["bytes"]
        if type(wanted) is not int:
            raise ValueError("no number of bytes")
    except (ValueError, KeyError, TypeError):
        return "its files are damaged: the manifest cannot be read"
    state = open_file(place, name)
    if state is None:
        return "its files are damaged: the state is missing"
    try:
        size = os.fstat(state).st_size
    finally:
        os.close(state)
    return None if size == wanted else f"its files are damaged: the state has {size:,} of {wanted:,} bytes"
