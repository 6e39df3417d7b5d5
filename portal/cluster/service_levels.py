"""QoS levels: managed by administrators, chosen by users when they submit a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import transaction

from accounts.audit import record_audit
from accounts.models import Project, User
from portal.core import wake
from portal.core.problems import FieldProblem, Problems
from portal.jobs.access import in_states
from portal.jobs.models import Job, Partition, Qos
from scheduling.lifecycle import LIVE

LIMITS = ("max_gpus", "max_running_jobs", "max_gpus_per_user", "max_running_jobs_per_user")
COLUMNS = ("priority", "preempt_mode", "for_everybody", "is_default", *LIMITS)


class QosInUse(Exception):
    def __init__(self, qos: Qos, jobs: int) -> None:
        super().__init__(f"{jobs} jobs of level {qos.name} have not ended; change them or wait for them.")


@transaction.atomic
def set_qos(
    *, actor: User | None, name: str, values: Mapping[str, Any], preempts: Sequence[str], projects: Sequence[str]
) -> tuple[Qos, bool]:
    """Create or change a level: (level, created). Raises Problems for the field."""
    levels = {row.name: row for row in Qos.objects.select_for_update()}  # all: preemption rules concern them together
    allowed = {row.key: row for row in Project.objects.filter(key__in=projects)}
    problems = [FieldProblem("preempts", f"{one!r} is no level", "unknown") for one in preempts if one not in levels]
    problems += [
        FieldProblem("projects", f"{one!r} is no project", "unknown") for one in projects if one not in allowed
    ]
    if back := _way_back(name, preempts):
        text = f"{back!r} may preempt jobs of {name!r}, even indirectly: they would preempt each other endlessly"
        problems.append(FieldProblem("preempts", text, "loop"))
    if problems:
        raise Problems(problems)
    if values.get("is_default"):
        Qos.objects.filter(is_default=True).exclude(name=name).update(is_default=False)
    qos, made = Qos.objects.update_or_create(name=name, defaults={key: values[key] for key in COLUMNS})
    qos.preempts.set([levels[one] for one in preempts])
    qos.projects.set(allowed.values())
    detail = {**{key: values[key] for key in COLUMNS}, "preempts": list(preempts), "projects": list(projects)}
    record_audit(actor=actor, action="qos.set", target=name, detail=detail)
    transaction.on_commit(wake.schedule_round)
    return qos, made


def _way_back(name: str, preempts: Sequence[str]) -> str | None:
    """The first of the levels from which `name` can be reached."""
    pairs = Qos.preempts.through.objects.values_list("from_qos__name", "to_qos__name")
    below: dict[str, set[str]] = {}
    for one, other in pairs:
        below.setdefault(one, set()).add(other)
    for first in preempts:
        seen, ahead = set[str](), {first}
        while ahead:
            seen |= ahead
            ahead = set[str]().union(*(below.get(one, set()) for one in ahead)) - seen
        if name in seen:
            return first
    return None


@transaction.atomic
def remove_qos(*, actor: User, qos: Qos) -> None:
    """Raises QosInUse while it has unfinished jobs; ended ones keep its name in their job file."""
    qos = Qos.objects.select_for_update().get(pk=qos.pk)
    jobs = Job.objects.filter(in_states(LIVE), qos=qos).count()
    if jobs:
        raise QosInUse(qos, jobs)
    Job.objects.filter(qos=qos).update(qos=None)
    record_audit(actor=actor, action="qos.remove", target=qos.name)
    qos.delete()


def choose_qos(project: Project, name: str | None) -> Qos | None:
    """The QoS of a job of the project; raises Problems if the project may not use the one it names."""
    if name is None:
        return Qos.objects.filter(is_default=True).first()
    qos = Qos.objects.filter(name=name).first()
    if qos is None or not may_use(project, qos):
        mine = [one.name for one in Qos.objects.prefetch_related("projects") if may_use(project, one)][:30]
        there = f"{project.key} may use {', '.join(mine)}" if mine else f"{project.key} may use none"
        raise Problems([FieldProblem("qos", f"is no level that it may ask for; {there}", "unknown")])
    return qos


def may_use(project: Project, named: Qos | Partition) -> bool:
    if named.for_everybody:
        return True
    chain = Project.objects.values_list("ancestry", flat=True).get(pk=project.pk)
    return any(one.pk in chain for one in named.projects.all())
