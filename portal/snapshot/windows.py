"""Windows on nodes: maintenance closes them to all jobs, a reservation opens them to some.

Import the model from portal.jobs.models.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from django.db.models import QuerySet

from accounts.models import Project
from portal.jobs.models.window import NodeWindow
from portal.snapshot.shares import user_key
from scheduling import domain


def open_windows(now: datetime) -> QuerySet[NodeWindow]:
    """Windows that are active or ahead."""
    return NodeWindow.objects.filter(removed_at=None, end_at__gt=now)


def windows_of(cluster_id: int, nodes: Iterable[domain.Node], now: datetime) -> tuple[domain.Window, ...]:
    """One query if there are none."""
    rows = list(open_windows(now).filter(cluster=cluster_id).prefetch_related("projects", "users").order_by("pk"))
    if not rows:
        return ()
    chains = (
        dict(Project.objects.values_list("key", "ancestry")) if any(row.kind == "reservation" for row in rows) else {}
    )
    kinds = [(node.name, node.type) for node in nodes]
    return tuple(
        domain.Window(
            id=str(row.pk),
            nodes=frozenset(name for name, kind in kinds if row.has(name, kind)),
            start=row.start_at.timestamp(),
            end=row.end_at.timestamp(),
            projects=_keys({one.pk for one in row.projects.all()}, chains),
            users=frozenset(user_key(one.pk) for one in row.users.all()),
            text=row.reason,
        )
        for row in rows
    )


def _keys(projects: set[int], chains: dict[str, list[int]]) -> frozenset[str]:
    """The projects and all their subprojects."""
    return frozenset(key for key, chain in chains.items() if projects.intersection(chain))
