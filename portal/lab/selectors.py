"""Which simulations a user sees."""

from __future__ import annotations

from uuid import UUID

from django.db.models import QuerySet

from accounts.models import User
from portal.lab.models import Simulation, Trace
from portal.submission.saved import bound_to_project


def visible_simulations(user: User) -> QuerySet[Simulation]:
    """The user's own; administrators see all. A token that is bound to a project gives access to none."""
    rows = Simulation.objects.select_related("cluster", "created_by").defer("inputs")
    if bound_to_project(user):
        return rows.none()
    return rows if user.is_superuser else rows.filter(created_by=user.pk)


def access_simulation(user: User, key: UUID) -> Simulation:
    """Simulation.DoesNotExist if the user may not see it."""
    return visible_simulations(user).get(id=key)


def access_trace(user: User, key: UUID) -> Trace:
    rows = Trace.objects.filter(owner=user.pk)
    return (rows.none() if bound_to_project(user) else rows).get(pk=key)
