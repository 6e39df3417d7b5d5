"""Destinations of notices for tests, and the steps from an event to what is sent."""

from __future__ import annotations

from typing import Any

from django.utils import timezone

from accounts.models import Membership, Project, User
from portal.jobs.models import Job
from portal.notices import kinds
from portal.notices.deliveries import deliver_due
from portal.notices.models import Delivery, Destination
from portal.notices.outbox import take_in
from portal.notices.services import create_destination
from tests.portal.world import World


def destination(
    user: User, url: str | None = "https://hooks.example.org/x", kind: str = "webhook", **values: Any
) -> Destination:
    everything = [kind for kind in kinds.KINDS if user.is_superuser or kind not in kinds.OF_ADMINISTRATORS]
    values = {"name": "d", "events": everything, "own_jobs": True, "project": None, "enabled": True} | values
    row, secret = create_destination(
        actor=user, kind=kind, url=url, portal_url="https://portal.example.org/", values=values
    )
    row.secret = secret  # type: ignore[attr-defined]
    return row


def tell() -> list[str]:
    """Kinds of the deliveries that the outbox makes now."""
    before = set(Delivery.objects.values_list("pk", flat=True))
    take_in(timezone.now())
    return list(Delivery.objects.exclude(pk__in=before).order_by("pk").values_list("event", flat=True))


def due_again(*, rested: bool = True) -> None:
    """The time until the next attempts has passed."""
    now = timezone.now()
    Delivery.objects.filter(status="waiting").update(next_attempt_at=now)
    if rested:
        Destination.objects.update(rests_until=None)


def send() -> None:
    deliver_due(timezone.now())


def end(world: World, job: Job, reason: str = "done") -> None:
    world.gone(job, reason)


def person(name: str, project: Project | None = None, **values: Any) -> User:
    user = User.objects.create_user(f"{name}@example.org", "x", **values)
    if project is not None:
        Membership.objects.create(user=user, project=project, role="viewer")
    return user
