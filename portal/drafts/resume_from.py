"""`resume_from` of a job file: the checkpoint that it names, or what is wrong with it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

from accounts.models import Project, User
from portal.core.problems import FieldProblem, Problems
from portal.jobfile.schema import JobFile
from portal.jobs.access import access_job
from portal.jobs.models import Checkpoint, Job
from portal.storage.checkpoint_files import problem_with

#: How many of the newest checkpoints are searched for a complete one.
_NEWEST = 100


@dataclass(frozen=True, slots=True)
class Start:
    job: Job
    step: int


def find_start(user: User, project: Project, job_file: JobFile) -> Start | None:
    """Raises Problems if the checkpoint does not exist, is not the project's, or leaves no steps to run."""
    wanted = job_file.resume_from
    if wanted is None:
        return None
    source = _source(user, project, str(wanted.job))
    step = _given(source, wanted.step) if wanted.step is not None else _newest(source)
    if step >= job_file.total_steps:
        message = f"must be above the {step:,} steps of the checkpoint that it resumes from"
        raise Problems([FieldProblem("total_steps", message, "range")])
    return Start(source, step)


def _source(user: User, project: Project, reference: str) -> Job:
    try:
        job = access_job(user, reference)
    except Job.DoesNotExist:
        raise Problems([FieldProblem("resume_from.job", "There is no such job that you may see.", "invalid")]) from None
    if job.project_id != project.pk:
        message = f"#{job.number} belongs to {job.project.key}, not {project.key}: checkpoints stay within a project."
        raise Problems([FieldProblem("resume_from.job", message, "other_project")])
    return job


def _steps(job: Job) -> list[int]:
    steps = Checkpoint.objects.filter(run__job=job).order_by("-step").values_list("step", flat=True)
    return list(steps.distinct()[:_NEWEST])


def _given(job: Job, step: int) -> int:
    if not Checkpoint.objects.filter(run__job=job, step=step).exists():
        message = f"#{job.number} wrote no checkpoint at step {step:,}; {_offered(job)}."
        raise Problems([FieldProblem("resume_from.step", message, "invalid")])
    if problem := problem_with(job, step):
        message = f"The checkpoint of #{job.number} at step {step:,} cannot be used: {problem}; {_offered(job)}."
        raise Problems([FieldProblem("resume_from.step", message, "gone")])
    return step


def _offered(job: Job) -> str:
    """The steps that can be resumed from, without those that a program no longer keeps."""
    keep = int(job.spec.get("checkpoint", {}).get("keep", 3))
    kept = list(islice((step for step in _steps(job)[: 2 * keep] if problem_with(job, step) is None), keep))
    return f"it has those at {', '.join(f'{step:,}' for step in kept)}" if kept else "it has none"


def _newest(job: Job) -> int:
    steps = _steps(job)
    if not steps:
        message = f"#{job.number} has no checkpoint to resume from."
        raise Problems([FieldProblem("resume_from.job", message, "no_checkpoint")])
    for step in steps:
        if problem_with(job, step) is None:
            return step
    message = f"No checkpoint of #{job.number} can be used; of the newest, at step {steps[0]:,}: "
    raise Problems([FieldProblem("resume_from.job", f"{message}{problem_with(job, steps[0])}.", "gone")])
