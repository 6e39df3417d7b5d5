"""Read access. Only their owner sees destinations and what was sent there."""

from __future__ import annotations

from django.db.models import QuerySet

from accounts.models import User
from accounts.tree import below
from portal.notices.models import Delivery, Destination


def own_destinations(user: User) -> QuerySet[Destination]:
    """Those of the user; with a token that is bound to a project, those of that project and its subprojects."""
    found = Destination.objects.select_related("project", "user").filter(user=user.pk)
    token = user.acting_token
    return found.filter(project__in=below(token.project_id)) if token and token.project_id else found


def access_destination(user: User, pk: int) -> Destination:
    """Destination.DoesNotExist also for another user's."""
    return own_destinations(user).get(pk=pk)


def access_delivery(user: User, pk: int) -> Delivery:
    """Delivery.DoesNotExist also for another user's."""
    found = Delivery.objects.select_related("destination__user")
    return found.get(pk=pk, destination__in=own_destinations(user))
