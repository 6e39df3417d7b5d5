"""A job's first checkpoint if it resumes from another job's: a copy, so that neither's clean-up affects the other.

Runs under the project's account: files that it cannot read are not its own.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import time
from itertools import islice
from pathlib import Path

from evenkeel.runner.files import create_private, open_plain, parse_json, read_plain
from evenkeel.runner.trees import remove_tree

from scheduling.errors import ExecutorError
from scheduling.executors.local.layout import checked_name

_NAME = re.compile(r"step-[0-9]+")
_STATE_FILE = {"json": "state.json", "torch": "state.pt"}
_MAX_MANIFEST = 64 * 1024
_CHUNK = 1 << 20
_MAX_NAMES = 10_000
#: Less than a task's limit: a file may claim to be larger than its disk.
_COPY_S = 240.0


def bring_checkpoint(jobs: Path, job_id: str, source_job_id: str, step: int) -> None:
    """Raises a permanent ExecutorError if the checkpoint is missing or damaged."""
    target = jobs / checked_name(job_id) / "checkpoints"
    with os.scandir(target) as entries:
        has_one = any(_NAME.fullmatch(entry.name) for entry in islice(entries, _MAX_NAMES))
    if has_one:
        return  # it has one, of its own or from an earlier launch
    source = jobs / checked_name(source_job_id) / "checkpoints" / f"step-{int(step)}"
    draft = target / f".draft-{int(step)}-resumed"
    if not remove_tree(draft):
        raise ExecutorError(f"{draft.name} of an earlier launch cannot be removed at once", permanent=False)
    draft.mkdir(mode=0o700)
    try:
        _copy(source, draft)
    except (OSError, ValueError, KeyError, TypeError) as error:
        with contextlib.suppress(OSError):
            remove_tree(draft)
        text = f"the checkpoint of step {step} to resume from cannot be used: {error}"
        raise ExecutorError(text, permanent=True) from None
    draft.rename(target / f"step-{int(step)}")


def _copy(source: Path, draft: Path) -> None:
    text = read_plain(source / "manifest.json", _MAX_MANIFEST)
    manifest = parse_json(text)
    name = _STATE_FILE[manifest["format"]]
    until, digest = time.monotonic() + _COPY_S, hashlib.sha256()
    with open_plain(source / name) as original, os.fdopen(create_private(draft / name), "wb") as copy:
        while chunk := original.read(_CHUNK):
            digest.update(chunk)
            copy.write(chunk)
            if time.monotonic() > until:
                raise ValueError(f"it cannot be copied within {_COPY_S:g} s")
        copy.flush()
        os.fsync(copy.fileno())
    if digest.hexdigest() != manifest["sha256"]:
        raise ValueError("it is damaged, its checksum differs")
    with os.fdopen(create_private(draft / "manifest.json"), "wb") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
