"""What projects hold and spend, in a number of queries that does not grow with them."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from django.db.models import Count

from accounts.ledger import current_prices, sums_by
from accounts.models import LedgerEntry, Project, User
from accounts.pricing import amount
from accounts.quotas import gpu_limits
from accounts.selectors import projects_with_roles
from portal.jobs.describe import iso
from portal.jobs.models import Hold, Run
from scheduling.lifecycle import LIVE, WAITING

_US = timedelta(microseconds=1)


def describe_projects(user: User, now: datetime, *, only: Project | None = None) -> list[dict[str, Any]]:
    projects = projects_with_roles(user)
    shown = {project.pk: project.key for project, _ in projects}
    if only is not None:
        projects = [(project, role) for project, role in projects if project.pk == only.pk]
    ids = [project.pk for project, _ in projects]
    month = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    limits = gpu_limits()
    held, spent = _held_now(ids, month, now)
    for row in sums_by(LedgerEntry.objects.filter(project__in=ids, to_at__gte=month), "project"):
        spent[row["project"]] = spent.get(row["project"], Decimal(0)) + row["products"]
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
            "gpus_held": held.get(project.pk, 0),
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
    prices = current_prices(now)
    counts: dict[int, int] = {}
    products: dict[int, Decimal] = {}
    holds = Hold.objects.filter(run__job__project__in=ids, during__upper_inf=True)
    for hold in holds.select_related("run__job", "accelerator__node"):
        project, kind = hold.run.job.project_id, hold.accelerator.node.accelerator_type
        counts[project] = counts.get(project, 0) + 1
        held_us = max(0, (now - max(month, hold.started_at)) // _US)
        products[project] = products.get(project, Decimal(0)) + prices.get(kind, 0) * held_us
    return counts, products
