"""Changes a job after its submission, as far as its request may still change."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import transaction
from django.utils import timezone

from accounts.models import User
from portal.cluster.partitions import choose_partition, limits_of
from portal.cluster.service_levels import choose_qos
from portal.core import wake
from portal.core.problems import FieldProblem, Problems
from portal.drafts.checks import check_deadline
from portal.drafts.gpu_parts import parts_of
from portal.jobfile.parsing import parse_job_file
from portal.jobfile.patch import JobPatch
from portal.jobs import events
from portal.jobs.job_deadline import deadline_of
from portal.jobs.models import HoldKind, Job, Run
from portal.lifecycle.locking import JobConflict, NotAllowed, audit_for_others, lock_job_and_run
from portal.lifecycle.suspend import has_cost_its_limit, hold_first, lift_hold
from scheduling.lifecycle import LIVE, WAITING, State

#: Descriptive keys may be changed at any time; the others only affect how the job runs.
_AT_ANY_TIME = frozenset({"name", "labels"})


def patch_job(*, actor: User, job: Job, patch: JobPatch) -> Job:
    """Apply the keys in `patch`, all or none. Raises Problems, JobConflict and NotAllowed by field."""
    now = timezone.now()
    with transaction.atomic():
        job, run = lock_job_and_run(job.pk)
        spec = _patched(job.spec, patch)
        changed = {key: value for key, value in spec.items() if value != job.spec.get(key)}
        changed |= {key: None for key in job.spec if key not in spec}
        _check(actor, job, run, changed)
        if "deadline" in changed and patch.deadline != deadline_of(job):
            check_deadline(patch.deadline, now)
        if not changed:
            return job
        before = {key: job.spec.get(key) for key in changed}
        _store(job, spec, changed)
        _tell(actor, job, before, changed, now)
        _after(actor, job, run, changed, now)
    return job


def _patched(spec: dict[str, Any], patch: JobPatch) -> dict[str, Any]:
    """The job file with the patch's keys, validated as a whole."""
    given = patch.model_dump(mode="json", include=patch.model_fields_set)
    if "labels" in given:
        labels = spec.get("labels", {}) | given["labels"]
        given["labels"] = {key: value for key, value in labels.items() if value is not None}
    valid = parse_job_file(spec | given).model_dump(mode="json", exclude_none=True)
    kept = {key: value for key, value in spec.items() if key not in given}
    return kept | {key: valid[key] for key in given if key in valid}


def _check(actor: User, job: Job, run: Run, changed: dict[str, Any]) -> None:
    state = State(run.state)
    if state not in LIVE and (late := sorted(changed.keys() - _AT_ANY_TIME)):
        raise JobConflict([_too_late(key, run) for key in late])
    if "partition" in changed and state not in WAITING:
        message = f"cannot be changed while the job has GPUs: {hold_first(job, run, 'put the job on hold first')}"
        raise JobConflict.of("partition", message, "holds_gpus")
    if "total_steps" in changed and changed["total_steps"] < job.total_steps:
        message = f"may only grow: it is {job.total_steps}, not {changed['total_steps']}"
        raise Problems([FieldProblem("total_steps", message, "not_upward")])
    if actor.is_superuser:
        return
    if "priority" in changed:
        raise NotAllowed.of("priority", "is changed by administrators only; nice lowers it")
    if "nice" in changed and (changed["nice"] or 0) < job.spec.get("nice", 0):
        raise NotAllowed.of("nice", f"may only grow: it is {job.spec.get('nice', 0)}; administrators lower it")


def _too_late(key: str, run: Run) -> FieldProblem:
    if key == "total_steps" and State(run.state) is State.FINISHED:
        begins = " and resume_from: latest" if run.checkpoint_step else ""
        message = f"cannot grow: the job has succeeded. Resubmit it with more total_steps{begins}."
    else:
        message = "cannot be changed: the job has ended. Resubmit it with the change."
    return FieldProblem(key, message, "ended")


def _store(job: Job, spec: dict[str, Any], changed: dict[str, Any]) -> None:
    job.spec = spec
    job.name = spec.get("name") or job.name
    job.labels = spec.get("labels", {})
    job.restartable = spec.get("restartable")
    job.total_steps = spec["total_steps"]
    job.priority = spec.get("priority", 0) - spec.get("nice", 0)
    if "deadline" in changed:
        job.deadline_told = ""
    if "qos" in changed:
        job.qos = choose_qos(job.project, changed["qos"])
    if changed.keys() & {"partition", "max_duration"}:
        _fit_partition(job, spec, changed)
    job.save(
        update_fields=[
            "qos",
            "partition",
            "spec",
            "name",
            "labels",
            "restartable",
            "total_steps",
            "priority",
            "deadline_told",
            "max_gpus",
            "gpu_memory_mib",
            "max_duration_s",
        ]
    )


def _fit_partition(job: Job, spec: dict[str, Any], changed: dict[str, Any]) -> None:
    """Within the limits of its present or new partition; within its present one its GPUs do not change."""
    if "partition" in changed:
        job.partition = choose_partition(job.project, job.cluster, changed["partition"])
    file = parse_job_file(spec)
    limits = limits_of(file, job.partition)
    job.max_duration_s = limits["max_duration_s"]
    if "partition" in changed:
        job.max_gpus = limits["max_gpus"]
        job.gpu_memory_mib = parts_of(file.gpus, job.cluster_id, job.partition)["gpu_memory_mib"]


def _tell(actor: User, job: Job, before: dict[str, Any], changed: dict[str, Any], now: datetime) -> None:
    detail = {key: {"before": before[key], "after": changed[key]} for key in sorted(changed)}
    words = ", ".join(f"{key} from {_word(before[key])} to {_word(changed[key])}" for key in sorted(changed))
    text = f"#{job.number} {job.name}: {actor} changed {words}"
    events.append(kind="changed", job=job, run=job.run, at=now, text=text[:1_000], detail=detail)
    audit_for_others(actor, job, "job.patch", detail)
    transaction.on_commit(wake.schedule_round)


def _word(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}={item}" for key, item in value.items()) or "none"
    return "none" if value is None else str(value)


def _after(actor: User, job: Job, run: Run, changed: dict[str, Any], now: datetime) -> None:
    """A job suspended because of its max_cost continues as soon as it may cost more."""
    if "max_cost" in changed and job.hold_kind == HoldKind.COST and not has_cost_its_limit(job, now):
        lift_hold(job, run, text=f"Released: {actor} raised max_cost.", now=now)
