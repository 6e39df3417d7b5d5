"""Jobs that share a GPU with a job, and the cost of sharing."""

from __future__ import annotations

from copy import copy
from typing import Any

from portal.jobfile.resources import WHOLE_PERCENT
from portal.jobs.models import Accelerator, Hold, Job, Run
from portal.readmodels.jobs.summary import people_state
from portal.throughput.job_profiles import job_profiles
from portal.throughput.pairs import Beside, Measured, measured_pairs
from portal.throughput.profiles import policy_workload
from portal.throughput.slowdown import steps_per_s_at
from scheduling.lifecycle import TRAINING, State

#: A ratio of throughput to GPU share this close to 1 is computed, not measured.
_SAME = 1e-6


def sharing(job: Job) -> dict[str, Any] | None:
    """None if the job has no GPU share now."""
    run = job.run
    if run is None or job.gpu_share_percent == WHOLE_PERCENT:
        return None
    gpus = Accelerator.objects.filter(assignments__run=run, assignments__during__upper_inf=True)
    gpu = gpus.select_related("node").first()
    if gpu is None:
        return None
    kind = gpu.node.accelerator_type
    alone = copy(job)
    alone.gpu_share_percent = WHOLE_PERCENT
    whole, part = (_steps_per_s(one, kind) for one in (alone, job))
    others = _others(gpu, run)
    beside = _beside(job, others, kind)
    now_steps_per_s = run.steps_per_s if State(run.state) in TRAINING else None
    return {
        "share_percent": job.gpu_share_percent,
        "memory_mib": job.gpu_memory_mib or None,
        "whole_steps_per_s": whole,
        **_expected(job, whole, part, beside),
        "measured_slowdown": round(whole / now_steps_per_s, 4) if whole and now_steps_per_s else None,
        "neighbours": [_neighbour(hold, found, whole) for hold, found in zip(others, beside, strict=True)],
    }


def _expected(job: Job, whole: float | None, part: float | None, beside: list[Measured | None]) -> dict[str, Any]:
    """By measurements beside such a neighbour, if it is the only one; else by its GPU share."""
    if len(beside) == 1 and beside[0] and whole:
        return {"expected_slowdown": round(whole / beside[0].steps_per_s, 4), "expected_source": "pair"}
    slowdown = whole / part if whole and part else WHOLE_PERCENT / job.gpu_share_percent
    own = whole and part and abs(part / whole - job.gpu_share_percent / WHOLE_PERCENT) > _SAME
    return {"expected_slowdown": round(slowdown, 4), "expected_source": "part" if own else "share"}


def _steps_per_s(job: Job, accelerator_type: str) -> float | None:
    known = job_profiles([job], {accelerator_type: 1})[job.pk]
    return steps_per_s_at(known.get(accelerator_type), 1)


def _others(gpu: Accelerator, run: Run) -> list[Hold]:
    holds = Hold.objects.filter(accelerator=gpu, during__upper_inf=True).exclude(run=run)
    read = ("run__job__project", "run__job__model_type")
    return list(holds.select_related(*read).order_by("-share_percent", "run__job__number"))


def _beside(job: Job, others: list[Hold], kind: str) -> list[Measured | None]:
    """For each of the others, the measurement of such a job beside it."""
    own, names = policy_workload(job), [policy_workload(hold.run.job) for hold in others]
    measured = measured_pairs([own], job.cluster_id, names) if names else {}
    keys = [
        Beside(own, job.gpu_share_percent, name, hold.share_percent, kind)
        for name, hold in zip(names, others, strict=True)
    ]
    return [measured.get(key) for key in keys]


def _neighbour(hold: Hold, measured: Measured | None, whole: float | None) -> dict[str, Any]:
    """Of jobs of others only number, project and GPU share."""
    return {
        "number": hold.run.job.number,
        "project": hold.run.job.project.name,
        "share_percent": hold.share_percent,
        "state": people_state(hold.run),
        "slowdown": round(whole / measured.steps_per_s, 4) if whole and measured else None,
        "samples": measured.samples if measured else 0,
    }
