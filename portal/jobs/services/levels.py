"""Levels of service: made and changed by administrators, chosen by whoever submits a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import transaction

from accounts.audit import record_audit
from accounts.models import Project, User
from portal.jobs import wakeups
from portal.jobs.models import Job, Qos
from portal.jobs.schema import FieldProblem, Problems
from portal.jobs.selectors import in_states
from scheduling.lifecycle import LIVE

LIMITS = ("max_gpus", "max_running_jobs", "max_gpus_per_user", "max_running_jobs_per_user")
COLUMNS = ("priority", "for_everybody", "is_default", *LIMITS)


class QosInUse(Exception):
    def __init__(self, qos: Qos, jobs: int) -> None:
        super().__init__(f"{jobs} jobs of level {qos.name} have not ended; change them or wait for them.")


@transaction.atomic
def set_qos(
    *, actor: User | None, name: str, values: Mapping[str, Any], preempts: Sequence[str], projects: Sequence[str]
) -> tuple[Qos, bool]:
    """Make a level, or give one that exists these values: (level, made). Raises Problems naming the field."""
    others, unknown = _named(Qos.objects.select_for_update(), "name", preempts)
    allowed, strange = _named(Project.objects.all(), "key", projects)
    problems = [FieldProblem("preempts", f"{one!r} is no level", "unknown") for one in unknown]
    problems += [FieldProblem("projects", f"{one!r} is no project", "unknown") for one in strange]
    if name in preempts:
        problems.append(FieldProblem("preempts", "a level does not put out its own jobs", "invalid"))
    if problems:
        raise Problems(problems)
    if values.get("is_default"):
        Qos.objects.filter(is_default=True).exclude(name=name).update(is_default=False)
    qos, made = Qos.objects.update_or_create(name=name, defaults={key: values[key] for key in COLUMNS})
    qos.preempts.set(others)
    qos.projects.set(allowed)
    detail = {**{key: values[key] for key in COLUMNS}, "preempts": list(preempts), "projects": list(projects)}
    record_audit(actor=actor, action="qos.set", target=name, detail=detail)
    transaction.on_commit(wakeups.wake)
    return qos, made


def _named(rows: Any, column: str, names: Sequence[str]) -> tuple[list[Any], list[str]]:
    found = {getattr(row, column): row for row in rows.filter(**{f"{column}__in": names})}
    return list(found.values()), [name for name in names if name not in found]


@transaction.atomic
def remove_qos(*, actor: User, qos: Qos) -> None:
    """Raises QosInUse while jobs of it have not ended; ended ones keep its name in their job file."""
    qos = Qos.objects.select_for_update().get(pk=qos.pk)
    jobs = Job.objects.filter(in_states(LIVE), qos=qos).count()
    if jobs:
        raise QosInUse(qos, jobs)
    Job.objects.filter(qos=qos).update(qos=None)
    record_audit(actor=actor, action="qos.remove", target=qos.name)
    qos.delete()


def choose_qos(project: Project, name: str | None) -> Qos | None:
    """The level that a job of the project gets; raises Problems where it may not have the one it names."""
    if name is None:
        return Qos.objects.filter(is_default=True).first()
    qos = Qos.objects.filter(name=name).first()
    if qos is None or not may_use(project, qos):
        mine = [one.name for one in Qos.objects.prefetch_related("projects") if may_use(project, one)][:30]
        there = f"{project.key} may use {', '.join(mine)}" if mine else f"{project.key} may use none"
        raise Problems([FieldProblem("qos", f"is no level that it may ask for; {there}", "unknown")])
    return qos


def may_use(project: Project, qos: Qos) -> bool:
    if qos.for_everybody:
        return True
    chain = Project.objects.values_list("ancestry", flat=True).get(pk=project.pk)
    return any(one.pk in chain for one in qos.projects.all())
