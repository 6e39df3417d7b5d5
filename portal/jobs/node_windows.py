"""Windows on nodes: maintenance, when they are for nobody, and reservations, when they are for some.

Import the model from portal.jobs.models.
"""

from __future__ import annotations

from datetime import datetime

from django.db.models import QuerySet

from portal.jobs.models.window import NodeWindow


def open_windows(now: datetime) -> QuerySet[NodeWindow]:
    """Those that are in force or to come."""
    return NodeWindow.objects.filter(removed_at=None, end_at__gt=now)
