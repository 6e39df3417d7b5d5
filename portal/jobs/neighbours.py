"""Who shares a GPU with a job, and what that costs it."""

from __future__ import annotations

from copy import copy
from typing import Any

from portal.jobs.describe import people_state
from portal.jobs.models import Accelerator, Hold, Job, Run
from portal.jobs.relative import steps_per_s_at
from portal.jobs.schema import WHOLE_PERCENT
from portal.jobs.snapshots import job_profiles
from scheduling.lifecycle import TRAINING, State


def sharing(job: Job) -> dict[str, Any] | None:
    """None where the job has no part of a GPU now."""
    run = job.run
    if run is None or job.gpu_share_percent == WHOLE_PERCENT:
        return None
    gpus = Accelerator.objects.filter(assignments__run=run, assignments__during__upper_inf=True)
    gpu = gpus.select_related("node").first()
    if gpu is None:
        return None
    alone = copy(job)
    alone.gpu_share_percent = WHOLE_PERCENT
    whole, part = (_steps_per_s(one, gpu.node.accelerator_type) for one in (alone, job))
    measured = run.steps_per_s if State(run.state) in TRAINING else None
    return {
        "share_percent": job.gpu_share_percent,
        "memory_mib": job.gpu_memory_mib or None,
        "whole_steps_per_s": whole,
        "expected_slowdown": round(whole / part if whole and part else WHOLE_PERCENT / job.gpu_share_percent, 4),
        "measured_slowdown": round(whole / measured, 4) if whole and measured else None,
        "neighbours": _neighbours(gpu, run),
    }


def _steps_per_s(job: Job, accelerator_type: str) -> float | None:
    known = job_profiles([job], {accelerator_type: 1})[job.pk]
    return steps_per_s_at(known.get(accelerator_type), 1)


def _neighbours(gpu: Accelerator, run: Run) -> list[dict[str, Any]]:
    """Of others' jobs the number, the project and the part."""
    holds = Hold.objects.filter(accelerator=gpu, during__upper_inf=True).exclude(run=run)
    return [
        {
            "number": hold.run.job.number,
            "project": hold.run.job.project.name,
            "share_percent": hold.share_percent,
            "state": people_state(hold.run),
        }
        for hold in holds.select_related("run__job__project").order_by("-share_percent", "run__job__number")
    ]
