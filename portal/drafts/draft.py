"""Job drafts: a submission's requests, checked against what the user may use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils import timezone

from accounts.models import Project, User
from accounts.selectors import writable_projects
from portal.cluster.partitions import choose_partition, limits_of
from portal.cluster.service_levels import choose_qos
from portal.core.problems import FieldProblem, Problems
from portal.drafts.checks import check_deadline, check_start
from portal.drafts.dependencies import find_dependencies
from portal.drafts.engine_options import check_slurm
from portal.drafts.gpu_parts import parts_of
from portal.drafts.offered_software import check_software
from portal.drafts.resume_from import Start, find_start
from portal.jobfile.schema import JobFile
from portal.jobs.identity import check_account
from portal.jobs.models import Cluster, Job, ModelType, Qos
from portal.lifecycle.allocations import new_run
from portal.material import claims
from portal.snapshot import engine_limits


@dataclass(frozen=True)
class ResolvedDraft:
    """A job file with everything it refers to."""

    user: User
    job_file: JobFile
    project: Project
    model_type: ModelType | None
    start: Start | None
    dependencies: Sequence[tuple[str, Job | None]]
    placed: Mapping[str, Any]  # columns: cluster and why it was chosen, qos, partition, and the bounds of a job there

    def jobs(self, places: Iterable[tuple[int, int | None]], now: datetime, **columns: Any) -> list[Job]:
        """Jobs with these (number, index), each with its first run; nothing is stored."""
        spec, start = self.job_file, self.start
        resolved = {"resume_from": {"job": start.job.number, "step": start.step}} if start else {}
        document = spec.model_dump(mode="json", exclude_none=True) | {"project": self.project.key} | resolved
        model_type, step = self.model_type, start.step if start else 0
        jobs = [
            Job(
                number=number,
                project=self.project,
                owner=self.user,
                name=spec.name or (model_type.name if model_type else "command"),
                # resubmitting it makes one more of its kind
                spec=document if index is None else document | {"array": {"indices": str(index)}},
                model_type=model_type,
                total_steps=spec.total_steps,
                batch_size=spec.batch_size or (model_type.default_batch_size if model_type else 1),
                min_gpus=spec.gpus.min,
                accelerator_types=spec.gpus.types,
                priority=spec.priority - spec.nice,
                **self.placed,
                array_index=index,
                restartable=spec.restartable,
                labels=spec.labels,
                retry_limit=spec.retry.limit,
                submitted_at=now,
                resume_job=start.job if start else None,
                resume_step=start.step if start else None,
                **columns,
            )
            for number, index in places
        ]
        for job in jobs:
            job.run = new_run(job, attempt=1, now=now, step=step, checkpoint_step=step)
        return jobs


@dataclass(frozen=True)
class ValidatedDraft:
    """A job file with the portal objects it refers to, before the cluster is chosen."""

    user: User
    job_file: JobFile
    project: Project
    model_type: ModelType | None
    start: Start | None
    dependencies: Sequence[tuple[str, Job | None]]
    qos: Qos | None

    def on(self, cluster: Cluster, choice: str = "") -> ResolvedDraft:
        """Raises Problems for fields that are not possible there."""
        file = self.job_file
        check_start(self.start, cluster)
        check_software(file, cluster)
        check_slurm(file, cluster)
        check_account(self.user, cluster)
        partition = choose_partition(self.project, cluster, file.partition)
        placed: dict[str, Any] = {"cluster": cluster, "cluster_choice": choice, "qos": self.qos, "partition": partition}
        placed |= limits_of(file, partition)
        placed |= parts_of(file.gpus, cluster.pk, partition)
        if (most := engine_limits.check_limits(file, cluster, self.project, self.user)) is not None:
            placed["max_gpus"] = min(placed["max_gpus"] or most, most)
        return ResolvedDraft(self.user, file, self.project, self.model_type, self.start, self.dependencies, placed)


def validate_draft(user: User, job_file: JobFile, *, again: bool = False) -> ValidatedDraft:
    """Raises Problems by field. `again`: it was submitted before, and its deadline may have passed since."""
    check_deadline(job_file.deadline, timezone.now(), again=again)
    project, model_type = resolve(user, job_file)
    start = find_start(user, project, job_file)
    dependencies = find_dependencies(user, job_file)
    qos = choose_qos(project, job_file.qos)
    return ValidatedDraft(user, job_file, project, model_type, start, dependencies, qos)


def which_projects(user: User) -> str:
    """The message for a user who names no project, or one that they may not submit to."""
    allowed = ", ".join(writable_projects(user).values_list("key", flat=True)[:20])
    return f"Name a project that you may submit to: {allowed}." if allowed else "You may not submit to any project."


def resolve(user: User, job_file: JobFile) -> tuple[Project, ModelType | None]:
    problems = []
    projects = writable_projects(user)
    project = projects.filter(key=job_file.project).first() if job_file.project else None
    if not job_file.project:
        mine = list(projects[:2])
        project = mine[0] if len(mine) == 1 else None
    if project is None:
        problems.append(FieldProblem("project", which_projects(user), "invalid"))
    model_type = None
    if job_file.model_type:
        model_type = ModelType.objects.filter(name=job_file.model_type, enabled=True).first()
        if model_type is None:
            known = ", ".join(ModelType.objects.filter(enabled=True).values_list("name", flat=True)[:30])
            problems.append(FieldProblem("model_type", f"Unknown model type; there are {known}.", "invalid"))
    if project is not None:
        problems += claims.find_problems(project, job_file)
    if problems or project is None:
        raise Problems(problems)
    return project, model_type
