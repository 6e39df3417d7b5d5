"""Which rollouts a user sees; only administrators may start one."""

from __future__ import annotations

from uuid import UUID

from django.db.models import QuerySet

from accounts.models import User
from portal.rollouts.models import Rollout
from portal.submission.saved import bound_to_project


def visible_rollouts(user: User) -> QuerySet[Rollout]:
    rows = Rollout.objects.select_related("created_by", "promoted_by", "ended_by", "simulation").defer(
        "memory", "simulation__inputs"
    )
    return rows if user.is_superuser and not bound_to_project(user) else rows.none()


def access_rollout(user: User, key: UUID) -> Rollout:
    """Rollout.DoesNotExist if the user may not see it."""
    return visible_rollouts(user).get(id=key)
