"""Reasons of waiting jobs in the words of `squeue`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from portal.jobs.models import Job, Run
from scheduling.domain.reason_codes import find_code
from scheduling.lifecycle import WAITING, State


def waiting_word(job: Job, run: Run) -> str | None:
    """Of a waiting job; None for others, and if Slurm has no word for it."""
    return slurm_word(obstacle(job, run), run.reason_detail) if State(run.state) in WAITING else None


def obstacle(job: Job, run: Run) -> str:
    """The token of the first obstacle: a hold precedes everything else."""
    return f"held_{job.hold_kind}" if job.hold_kind else run.reason_token


def slurm_word(token: str, detail: Mapping[str, Any]) -> str | None:
    """None if Slurm has no word for it."""
    if own := detail.get("slurm"):
        return str(own)
    code = find_code(token)
    if code is None:
        return None
    row, level = code.row, str(detail.get("level", ""))
    if row.slurm_of_qos is None:
        return row.slurm or None
    if level.startswith("array "):
        return "JobArrayTaskLimit"
    of_level, of_user = row.slurm_of_qos
    if level.startswith("level "):
        return of_level
    return of_user if level.startswith("each user of level ") else row.slurm
