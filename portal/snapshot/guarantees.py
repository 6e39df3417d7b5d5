"""Guarantees of projects as rounds read them, and how much of them is used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from django.db.models import Count

from accounts.levels import Levels
from accounts.models import Guarantee
from portal.jobs.models import Accelerator, Assignment
from scheduling import domain


def guarantees_of_projects() -> tuple[domain.Guarantee, ...]:
    rows = Guarantee.objects.select_related("project").order_by("pk")
    return tuple(one for row in rows for one in _parts(row))


def _parts(row: Guarantee) -> list[domain.Guarantee]:
    within, level = float(row.reclaim_within_s), f"project {row.project}"
    kinds = [(None, row.gpus), *sorted(row.by_type.items())]
    return [domain.Guarantee(row.project.key, gpus, kind, within, level) for kind, gpus in kinds if gpus]


def gpus_there() -> dict[str, int]:
    """The cluster's GPUs by type, including drained and lost nodes: they come back."""
    rows = Accelerator.objects.filter(present=True).values_list("node__accelerator_type")
    return dict(rows.annotate(count=Count("pk")).order_by())


def gpus_used(rows: Iterable[Guarantee]) -> Mapping[int, Counter[str]]:
    """project id -> GPUs that its jobs and those of its subprojects hold, by type."""
    levels, held = Levels.load(), Counter[tuple[int, str]]()
    now = Assignment.objects.filter(during__upper_inf=True).order_by()
    columns = now.values_list("run__job__project_id", "accelerator__node__accelerator_type")
    for project, kind, count in columns.annotate(count=Count("accelerator", distinct=True)):
        for level in levels.chain(project):
            held[level, kind] += count
    wanted = {row.project_id for row in rows}
    found: dict[int, Counter[str]] = {pk: Counter() for pk in wanted}
    for (project, kind), count in held.items():
        if project in wanted:
            found[project][kind] += count
    return found
