"""Use and costs of projects, in a number of queries that does not grow with them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.db.models import Count

from accounts.levels import Levels
from accounts.models import Project, User
from accounts.pricing import amount, from_micro
from accounts.quotas import gpu_limits, month_budgets_micro, period_of
from accounts.selectors import member_counts, visible_projects
from accounts.usage import totals_since
from portal.accounting.hold_costs import book_for, held, open_holds
from portal.core.times import iso
from portal.jobfile.gpu_text import gpus_of
from portal.jobs.models import Hold, Run
from scheduling.lifecycle import LIVE, WAITING


@dataclass(frozen=True)
class Holdings:
    """Present GPUs, running jobs and this month's cost of each single project."""

    gpus: dict[int, int]
    running: dict[int, int]
    waiting: dict[int, int]
    spent: dict[int, Decimal]

    @classmethod
    def of(cls, ids: list[int], now: datetime) -> Holdings:
        month, _ = period_of("month", now)
        gpus, spent = _held_now(ids, month, now)
        for (project_id, _user), (_gpu, money) in totals_since(month.date()).items():
            spent[project_id] = spent.get(project_id, Decimal(0)) + money
        running = _runs(ids, [s.value for s in LIVE - WAITING])
        return cls(gpus, running, _runs(ids, [s.value for s in WAITING]), spent)

    def together(self, ids: Iterable[int]) -> dict[str, Any]:
        ids = list(ids)
        return {
            "gpus_allocated": sum(self.gpus.get(one, 0) for one in ids),
            "jobs_running": sum(self.running.get(one, 0) for one in ids),
            "jobs_queued": sum(self.waiting.get(one, 0) for one in ids),
            "spend_month": str(amount(sum((self.spent.get(one, Decimal(0)) for one in ids), Decimal(0)), 2)),
        }


def describe_projects(user: User, projects: Sequence[tuple[Project, str]], now: datetime) -> list[dict[str, Any]]:
    """`projects`: each with the user's role there."""
    above = {project.parent_id for project, _ in projects if project.parent_id}
    shown = dict(visible_projects(user).filter(pk__in=above).values_list("pk", "key"))
    ids = [project.pk for project, _ in projects]
    levels = Levels.load()
    limits, budgets, members = gpu_limits(), month_budgets_micro(ids), member_counts(ids)
    found = Holdings.of(sorted({one for project_id in ids for one in levels.under(project_id)}), now)
    return [
        {
            "key": project.key,
            "name": project.name,
            "role": role,
            "parent": shown.get(project.parent_id or 0),
            "archived_at": iso(project.archived_at),
            "members": members.get(project.pk, 0),
            "gpu_limit": limits.get(project.pk),
            "budget_month": _money(budgets.get(project.pk)),
            **found.together([project.pk]),
            "with_below": found.together(levels.under(project.pk)),
        }
        for project, role in projects
    ]


def _money(micro: int | None) -> str | None:
    return None if micro is None else format(from_micro(micro).normalize(), "f")


def _runs(ids: list[int], states: list[str]) -> dict[int, int]:
    runs = Run.objects.filter(job__project__in=ids, state__in=states)
    return dict(runs.values_list("job__project").order_by("job__project").annotate(n=Count("pk")))


def _held_now(ids: list[int], month: datetime, now: datetime) -> tuple[dict[int, int], dict[int, Decimal]]:
    """GPUs held by project, and the cost of open occupancy since the month began (see accounts.pricing)."""
    holds = held(open_holds(Hold.objects.filter(run__job__project__in=ids)), now)
    book = book_for(holds, now)
    hundredths: dict[int, int] = {}
    products: dict[int, Decimal] = {}
    for one in holds:
        hundredths[one.project_id] = hundredths.get(one.project_id, 0) + one.gpu_hundredths
        products[one.project_id] = products.get(one.project_id, Decimal(0)) + book.product(one, month)
    return {project: gpus_of(sum_) for project, sum_ in hundredths.items()}, products
