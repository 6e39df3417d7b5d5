"""Reasons of waiting jobs in the words that `squeue` has for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from portal.jobs.models import Job, Run
from scheduling.lifecycle import WAITING, State

_WORDS = {
    "resources": "Resources", "no_room": "Resources", "no_slot": "Resources", "no_layout": "Resources",
    "too_large": "Resources",
    "no_host": "Resources", "next_round": "Resources", "in_round": "Resources",
    "slot_too_small": "BadConstraints", "no_type": "BadConstraints",
    "priority": "Priority", "behind": "Priority", "others_end_sooner": "Priority", "preempted": "Priority",
    "reclaimed": "Priority", "reclaiming": "Resources", "may_not_borrow": "Resources",
    "budget_parked": "AssocGrpGRESMinutes", "quota_queue": "AssocMaxJobsLimit",
    "quota_period": "AssocGrpGRESMinutes", "back_off": "BeginTime", "dependency": "Dependency",
    "partition_full": "Resources", "across_pools": "Resources", "partition_too_small": "PartitionNodeLimit",
    "maintenance": "ReqNodeNotAvail", "reservation": "Reservation",
    "never": "BadConstraints", "no_profile": "BadConstraints", "node_unavailable": "ReqNodeNotAvail",
    "node_drained": "ReqNodeNotAvail", "node_drained_waits": "ReqNodeNotAvail", "node_lost": "ReqNodeNotAvail",
    "held_user": "JobHeldUser", "held_admin": "JobHeldAdmin", "held_cost": "AssocGrpBillingMinutes",
    "held_idle": "JobHeldAdmin",
}  # fmt: skip
#: Limits by where they sit: what a level of service holds in all, of each user, and limits of projects and people.
_LIMITS = {
    "quota": ("QOSGrpGRES", "QOSMaxGRESPerUser", "AssocGrpGRES"),
    "quota_jobs": ("QOSGrpJobsLimit", "QOSMaxJobsPerUserLimit", "AssocGrpJobsLimit"),
}


def waiting_word(job: Job, run: Run) -> str | None:
    """Of a job that waits; None of others, and where Slurm has no word for it."""
    return slurm_word(obstacle(job, run), run.reason_detail) if State(run.state) in WAITING else None


def obstacle(job: Job, run: Run) -> str:
    """The token of what stands first in its way: a hold, whatever else."""
    return f"held_{job.hold_kind}" if job.hold_kind else run.reason_token


def slurm_word(token: str, detail: Mapping[str, Any]) -> str | None:
    """None where Slurm has no word for it."""
    if own := detail.get("slurm"):
        return str(own)
    if token not in _LIMITS:
        return _WORDS.get(token)
    level = str(detail.get("level", ""))
    if level.startswith("array "):
        return "JobArrayTaskLimit"
    of_level, of_user, of_project = _LIMITS[token]
    if level.startswith("level "):
        return of_level
    return of_user if level.startswith("each user of level ") else of_project
