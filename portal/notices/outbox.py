"""Turns events into deliveries.

A trigger writes an outbox row in the transaction of each event that may cause a notice, if there is any destination:
rolled back events cause none, and committed ones are never lost. Rows leave the outbox in the transaction that writes
their deliveries, so each event is delivered once.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import Q

from accounts.models import Membership, Project
from accounts.selectors import roles_among
from portal.jobs.loops import Item, Loop, LoopName
from portal.jobs.models import JobEvent
from portal.notices import kinds, messages
from portal.notices.models import Delivery, Destination, Outbox

logger = logging.getLogger(__name__)
_BATCH, _BATCHES = 1_000, 10


def take_in(now: datetime) -> int:
    """Create deliveries for the rows in the outbox; returns their number. One statement if it is empty."""
    if not Outbox.objects.exists():
        return 0
    made, loop = 0, Loop(LoopName.OUTBOX)
    for _ in range(_BATCHES):
        with transaction.atomic():
            waiting = Outbox.objects.select_for_update(skip_locked=True).exclude(pk__in=loop.postponed_ids())
            rows = list(waiting.order_by("pk")[:_BATCH])
            made += sum(loop.together(rows, _of_row, lambda some: [_take(some, now)]))
        if len(rows) < _BATCH:
            break
    return made


def _of_row(row: Outbox) -> Item:
    return Item(str(row.pk), f"event {row.event_id}")


def _take(rows: Sequence[Outbox], now: datetime) -> int:
    made = _tell(_events(rows), now)
    Outbox.objects.filter(pk__in=[row.pk for row in rows]).delete()
    return made


def _events(rows: Sequence[Outbox]) -> list[JobEvent]:
    times = [row.event_at for row in rows]
    found = JobEvent.objects.select_related("job__project", "run", "project")
    within = found.filter(pk__in=[row.event_id for row in rows], at__range=(min(times), max(times)))
    return list(within.order_by("pk"))


def _tell(events: Iterable[JobEvent], now: datetime) -> int:
    said = [(kind, event) for event in events if (kind := kinds.kind_of(event)) is not None]
    if not said:
        return 0
    audience = Audience(said)
    rows = [
        delivery_of(destination, payload, now)
        for kind, event in said
        if (payload := _payload(kind, event)) is not None
        for destination in audience.of(kind, event)
    ]
    Delivery.objects.bulk_create(rows, batch_size=_BATCH)
    return len(rows)


def _payload(kind: str, event: JobEvent) -> dict[str, Any] | None:
    """None, and a line in the log, for an event that cannot be written: the others must not wait for it."""
    try:
        return messages.of_event(kind, event)
    except Exception:
        logger.exception("event %s is not told", event.pk)
        return None


def delivery_of(destination: Destination, payload: dict[str, Any], now: datetime) -> Delivery:
    payload = messages.addressed(payload, destination)
    return Delivery(
        destination=destination, event=payload["type"], payload=payload, created_at=now, next_attempt_at=now
    )


class Audience:
    """The destinations of some events: two queries, however many events and destinations there are."""

    def __init__(self, said: Sequence[tuple[str, JobEvent]]) -> None:
        projects = {project.pk: project for _, event in said if (project := project_of(event)) is not None}
        owners = {owner for _, event in said if event.job is not None and (owner := event.job.owner_id) is not None}
        self._of_user: dict[int, list[Destination]] = defaultdict(list)
        self._of_project: dict[int, list[Destination]] = defaultdict(list)
        self._of_members: list[Destination] = []
        self._of_administrators: list[Destination] = []
        found = _wanting({kind for kind, _ in said}, owners, projects.values())
        for destination in found:
            if destination.own_jobs:
                self._of_user[destination.user_id].append(destination)
            elif destination.project_id is not None:
                self._of_project[destination.project_id].append(destination)
            if kinds.BUDGET in destination.events and destination.own_jobs:
                self._of_members.append(destination)
            if destination.user.is_superuser and kinds.OF_ADMINISTRATORS & set(destination.events):
                self._of_administrators.append(destination)
        self._roles = roles_among((destination.user_id for destination in found), projects.values())

    def of(self, kind: str, event: JobEvent) -> Iterator[Destination]:
        """Destinations that want this kind of notice and whose owners may see it now."""
        project = project_of(event)
        if project is None:
            yield from (d for d in self._of_administrators if kind in d.events)
            return
        for destination in self._candidates(event, project):
            within = destination.project_id is None or destination.project_id in project.ancestry
            if kind in destination.events and within and self.may_see(destination, project):
                yield destination

    def _candidates(self, event: JobEvent, project: Project) -> Iterator[Destination]:
        for level in project.ancestry:
            yield from self._of_project.get(level, ())
        if event.job is not None:
            yield from self._of_user.get(event.job.owner_id or 0, ())
        else:  # notices about a whole project go to those with a role there, not to every administrator
            yield from (d for d in self._of_members if (d.user_id, project.pk) in self._roles)

    def may_see(self, destination: Destination, project: Project) -> bool:
        return destination.user.is_superuser or (destination.user_id, project.pk) in self._roles


def project_of(event: JobEvent) -> Project | None:
    """The job's present project: users who may see it there get the notice."""
    return event.job.project if event.job is not None else event.project


def _wanting(wanted: set[str], owners: set[int], projects: Iterable[Project]) -> list[Destination]:
    levels = {level for project in projects for level in project.ancestry}
    concerned = Q(own_jobs=True, user__in=owners) | Q(own_jobs=False, project__in=levels)
    if kinds.BUDGET in wanted:
        members = Membership.objects.filter(project__in=levels).values("user")
        concerned |= Q(own_jobs=True, events__contains=[kinds.BUDGET], user__in=members)
    if wanted & kinds.OF_ADMINISTRATORS:
        concerned |= Q(user__is_superuser=True, events__overlap=sorted(kinds.OF_ADMINISTRATORS))
    live = Destination.objects.select_related("user").filter(enabled=True, user__is_active=True)
    return list(live.filter(concerned, events__overlap=sorted(wanted)))
