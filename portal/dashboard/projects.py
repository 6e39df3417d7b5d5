"""What projects hold and spend, in a number of queries that does not grow with them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.db.models import Count

from accounts.models import Project, User
from accounts.pricing import amount
from accounts.quotas import gpu_limits, period_of
from accounts.selectors import visible_projects
from accounts.usage import totals_since
from portal.jobs.describe import iso
from portal.jobs.holding import book_for, held, open_holds
from portal.jobs.models import Hold, Run
from scheduling.lifecycle import LIVE, WAITING


def describe_projects(user: User, projects: Sequence[tuple[Project, str]], now: datetime) -> list[dict[str, Any]]:
    """`projects`: each with the user's role there."""
    above = {project.parent_id for project, _ in projects if project.parent_id}
    shown = dict(visible_projects(user).filter(pk__in=above).values_list("pk", "key"))
    ids = [project.pk for project, _ in projects]
    month, _ = period_of("month", now)
    limits = gpu_limits()
    gpus, spent = _held_now(ids, month, now)
    for (project_id, _user), (_gpu, money) in totals_since(month.date()).items():
        spent[project_id] = spent.get(project_id, Decimal(0)) + money
    waiting = _runs(ids, [s.value for s in WAITING])
    running = _runs(ids, [s.value for s in LIVE - WAITING])
    return [
        {
            "key": project.key,
            "name": project.name,
            "role": role,
            "parent": shown.get(project.parent_id or 0),
            "archived_at": iso(project.archived_at),
            "gpu_quota": limits.get(project.pk),
            "gpus_held": gpus.get(project.pk, 0),
            "jobs_running": running.get(project.pk, 0),
            "jobs_queued": waiting.get(project.pk, 0),
            "spend_month": str(amount(spent.get(project.pk, Decimal(0)), 2)),
        }
        for project, role in projects
    ]


def _runs(ids: list[int], states: list[str]) -> dict[int, int]:
    runs = Run.objects.filter(job__project__in=ids, state__in=states)
    return dict(runs.values_list("job__project").order_by("job__project").annotate(n=Count("pk")))


def _held_now(ids: list[int], month: datetime, now: datetime) -> tuple[dict[int, int], dict[int, Decimal]]:
    """GPUs held by project, and what open holds cost since the month began (see accounts.pricing)."""
    holds = held(open_holds(Hold.objects.filter(run__job__project__in=ids)), now)
    book = book_for(holds, now)
    counts: dict[int, int] = {}
    products: dict[int, Decimal] = {}
    for one in holds:
        counts[one.project_id] = counts.get(one.project_id, 0) + 1
        products[one.project_id] = products.get(one.project_id, Decimal(0)) + book.product(one, month)
    return counts, products
