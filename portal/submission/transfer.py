"""Moves a job to another project: past costs stay with the old project, future ones belong to the new one."""

from __future__ import annotations

from django.db import transaction
from django.utils import timezone

from accounts.models import Project, User
from accounts.quotas import QuotaExceeded
from accounts.selectors import manageable_projects, writable_projects
from accounts.services import record_audit
from portal.accounting.admission import admit
from portal.cluster.service_levels import may_use
from portal.core import wake
from portal.core.problems import FieldProblem, Problems
from portal.drafts.draft import which_projects
from portal.jobs import events
from portal.jobs.models import Assignment, Hold, Job, Run
from portal.lifecycle.locking import JobConflict, lock_job_and_run
from portal.lifecycle.suspend import hold_first
from portal.material import claims
from portal.storage.handovers import ask_for_handover
from scheduling.lifecycle import LIVE, State


def move_job(*, actor: User, job: Job, key: str) -> Job:
    """The caller has checked the right to change the job. Raises Problems, JobConflict, and PermissionError if the user
    may not move it."""
    now = timezone.now()
    with transaction.atomic():
        job, run = lock_job_and_run(job.pk)
        target = _target(actor, key)
        source = job.project
        if target.pk == source.pk:
            return job
        _check(actor, job, run, target)
        job.project, job.spec = target, job.spec | {"project": target.key}
        job.save(update_fields=["project", "spec"])
        ask_for_handover(job, now)
        name = f"#{job.number} {job.name}"
        detail = {"from": source.key, "to": target.key}
        text = f"{name}: {actor} moved it from {source.name} to {target.name}"
        events.append(kind="moved", job=job, run=run, at=now, text=text, detail=detail)
        left = f"{actor} moved job {name} to another project"
        events.append(kind="moved_away", project=source, at=now, text=left)
        record_audit(actor=actor, action="job.move", target=f"job {job.number}", detail=detail)
        transaction.on_commit(wake.schedule_round)
    return job


def _target(actor: User, key: str) -> Project:
    project = writable_projects(actor).filter(key=key).first()
    if project is None:
        raise Problems([FieldProblem("project", which_projects(actor), "invalid")])
    return project


def _check(actor: User, job: Job, run: Run, target: Project) -> None:
    if job.owner_id != actor.pk and not manageable_projects(actor).filter(pk=job.project_id).exists():
        raise PermissionError(f"#{job.number} is moved by its owner or by managers of {job.project.name}.")
    held = Hold.objects.filter(run__job=job, during__upper_inf=True).exists()
    if held or Assignment.objects.filter(run__job=job, during__upper_inf=True).exists():
        how = hold_first(job, run, "put the job on hold, move it, and release it")
        message = f"cannot be moved while it has GPUs, or is about to get them: {how}"
        raise JobConflict.of("job", message, "holds_gpus")
    if job.resume_step is not None and run.checkpoint_step == job.resume_step and not run.has_trained:
        message = "cannot be moved before it has begun: the checkpoint that it begins with is the project's"
        raise JobConflict.of("job", message, "resumes")
    if job.qos is not None and not may_use(target, job.qos):
        message = f"may not ask for level {job.qos.name}, which the job has; change its level first"
        raise JobConflict.of("project", message, "qos")
    if job.partition is not None and not may_use(target, job.partition):
        message = f"may not use partition {job.partition.name}, which the job is in; change its partition first"
        raise JobConflict.of("project", message, "partition")
    if State(run.state) in LIVE and (kept := claims.belongs_to_project(job.spec)):
        message = f"cannot be moved: its {kept} is the project's; submit it in the other project, with one of its own"
        raise JobConflict.of(
            "job", message.replace("secrets is", "secrets are").replace("with one of", "with those of"), "material"
        )
    if State(run.state) in LIVE:
        try:
            admit(
                user=job.owner or actor,
                project=target,
                min_gpus=job.min_gpus,
                types=job.accelerator_types,
                moved_from=job.project,
            )
        except QuotaExceeded as error:
            raise JobConflict.of("project", str(error), "quota") from None
