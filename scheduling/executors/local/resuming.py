"""A job's first checkpoint where it resumes from another job's: a copy, so that neither's clean-up touches the other.

Called as the project's account: whatever it may not read is not its own.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from pathlib import Path

from evenkeel.runner.files import create_private, open_plain

from scheduling.errors import ExecutorError
from scheduling.executors.local.layout import checked_name

_NAME = re.compile(r"step-[0-9]+")
_STATE_FILE = {"json": "state.json", "torch": "state.pt"}
_MAX_MANIFEST = 64 * 1024
_CHUNK = 1 << 20


def bring_checkpoint(jobs: Path, job_id: str, source_job_id: str, step: int) -> None:
    """Raises ExecutorError, for good, where the checkpoint is not there or damaged."""
    target = jobs / checked_name(job_id) / "checkpoints"
    if any(_NAME.fullmatch(path.name) for path in target.iterdir()):
        return  # it has one, of its own or from an earlier launch
    source = jobs / checked_name(source_job_id) / "checkpoints" / f"step-{int(step)}"
    draft = target / f".draft-{int(step)}-resumed"
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(mode=0o700)
    try:
        _copy(source, draft)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        shutil.rmtree(draft, ignore_errors=True)
        text = f"the checkpoint of step {step} to resume from cannot be used: {error}"
        raise ExecutorError(text, permanent=True) from None
    draft.rename(target / f"step-{int(step)}")


def _copy(source: Path, draft: Path) -> None:
    with open_plain(source / "manifest.json") as file:
        text = file.read(_MAX_MANIFEST)
    manifest = json.loads(text)
    name = _STATE_FILE[manifest["format"]]
    digest = hashlib.sha256()
    with open_plain(source / name) as original, os.fdopen(create_private(draft / name), "wb") as copy:
        while chunk := original.read(_CHUNK):
            digest.update(chunk)
            copy.write(chunk)
        copy.flush()
        os.fsync(copy.fileno())
    if digest.hexdigest() != manifest["sha256"]:
        raise ValueError("it is damaged, its checksum differs")
    with os.fdopen(create_private(draft / "manifest.json"), "wb") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
