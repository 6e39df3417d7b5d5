"""Sends due deliveries, retries failed ones, and disables destinations that keep failing.

A delivery is claimed by a guarded update before it is sent, so that two workers never send the same one; if its worker
died, it is free again after three minutes, and is sent again with the same id.
"""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Q, QuerySet, Window
from django.db.models.functions import RowNumber

from accounts.audit import record_audit
from portal.jobs.loops import Item, Loop, LoopName
from portal.material.encryption import CannotDecrypt, decrypt
from portal.notices import messages
from portal.notices.models import Delivery, Destination
from portal.notices.transport import mailing, signing
from portal.notices.transport.sending import Outcome, Request, send_all, send_one

MAX_ATTEMPTS = 8
#: 30 s, then three and a half times as long each time: the eighth attempt is most of a day after the first.
_FIRST_S, _FACTOR, _JITTER = 30.0, 3.5, 0.2
#: After a failure a destination is paused, so that an unreachable one does not take the time of others.
_REST_S, _LONGEST_REST_S = 15.0, 600.0
CLAIM = timedelta(minutes=3)
_AT_ONCE, _OF_ONE = 200, 50
#: Notices of this time share one message: a busy hour is a dozen messages.
MAIL_EVERY = timedelta(minutes=5)
#: A destination that fails for this long, and this often, is disabled.
FAILS_FOR, FAILS_OFTEN = timedelta(days=3), MAX_ATTEMPTS
TURNED_OFF = "Its destination was turned off before it was sent."


@dataclass(frozen=True, slots=True)
class Parcel:
    """One message: for chats and e-mail everything that is due."""

    deliveries: list[Delivery]
    request: Request | None = None
    #: Why it cannot be sent.
    problem: str = ""


def deliver_due(now: datetime) -> int:
    """Returns how many were tried."""
    by_destination: dict[int, list[Delivery]] = defaultdict(list)
    for delivery in claim(now):
        by_destination[delivery.destination_id].append(delivery)
    queues: list[list[Parcel]] = []
    mails: list[list[Parcel]] = []
    tried = 0
    for deliveries in by_destination.values():
        parcels = _messages(deliveries, now)
        sent = [parcel for parcel in parcels if not parcel.problem]
        for parcel in parcels:
            if parcel.problem:
                tried += _record_alone([parcel], [Outcome(False, error=parcel.problem)], now)
        if sent:
            (queues if sent[0].request else mails).append(sent)
    outcomes = send_all([[parcel.request for parcel in queue if parcel.request] for queue in queues]) if queues else []
    for queue, done in zip(queues, outcomes, strict=True):
        tried += _record_alone(queue, done, now)
    return tried + _send_mails([parcel.deliveries for queue in mails for parcel in queue], now)


def _messages(deliveries: list[Delivery], now: datetime) -> list[Parcel]:
    """The messages of one destination. A notice that cannot be written has failed; the others are sent without it."""
    loop, destination = Loop(LoopName.DELIVERIES, postpones=False), deliveries[0].destination

    def write(some: Sequence[Delivery]) -> list[Parcel]:
        if destination.kind == Destination.Kind.EMAIL:
            messages.as_mail(some, destination)
            return [Parcel(list(some))]
        try:
            return _parcels(destination, list(some), now)
        except CannotDecrypt as error:
            return [Parcel(list(some), problem=str(error))]

    parcels = loop.together(deliveries, _of_delivery, write)
    written = {delivery.pk for parcel in parcels for delivery in parcel.deliveries}
    for delivery in deliveries:
        if delivery.pk not in written:
            outcome = Outcome(False, error="This notice cannot be written; the portal's log has the details.")
            loop.run(_of_delivery(delivery, "record"), _record_one, delivery, outcome, now, again=True)
    return parcels


def _of_delivery(delivery: Delivery, what: str = "") -> Item:
    return Item(f"{what}{delivery.pk}", f"delivery {delivery.pk} to destination {delivery.destination_id}")


def _record_alone(parcels: Sequence[Parcel], outcomes: Sequence[Outcome], now: datetime) -> int:
    destination = parcels[0].deliveries[0].destination_id
    item = Item(f"destination:{destination}", f"destination {destination}")
    return Loop(LoopName.DELIVERIES, postpones=False).run(item, _record, parcels, outcomes, now) or 0


def claim(now: datetime) -> list[Delivery]:
    """Deliveries to send now, of each destination the oldest and a few more: the caller owns them for three minutes."""
    nth = Window(RowNumber(), partition_by="destination", order_by=("next_attempt_at", "pk"))
    chosen = _due(now).annotate(nth=nth).filter(nth__lte=_OF_ONE).order_by("nth", "next_attempt_at", "pk")
    pks = list(chosen.values_list("pk", flat=True)[:_AT_ONCE])
    if not pks:
        return []
    until = now + CLAIM
    with transaction.atomic():
        rows = _due(now).select_related("destination__user").select_for_update(skip_locked=True, of=("self",))
        found = list(rows.filter(pk__in=pks).order_by("pk"))
        Delivery.objects.filter(pk__in=[delivery.pk for delivery in found]).update(claimed_until=until)
    for delivery in found:
        delivery.claimed_until = until
    return found


def _due(now: datetime) -> QuerySet[Delivery]:
    unclaimed = Q(claimed_until=None) | Q(claimed_until__lt=now)
    awake = Q(destination__rests_until=None) | Q(destination__rests_until__lte=now)
    waiting = Delivery.objects.filter(unclaimed, awake, status=Delivery.Status.WAITING, next_attempt_at__lte=now)
    return waiting.filter(destination__enabled=True, destination__user__is_active=True)


def _parcels(destination: Destination, deliveries: list[Delivery], now: datetime) -> list[Parcel]:
    url = decrypt(destination.address_ciphertext)
    if destination.kind == Destination.Kind.SLACK:
        return [Parcel(deliveries, Request(url, {}, messages.as_chat(deliveries)))]
    keys = signing_secrets(destination, now)
    return [Parcel([delivery], _signed(url, keys, delivery, now)) for delivery in deliveries]


def _signed(url: str, keys: list[str], delivery: Delivery, now: datetime) -> Request:
    body = messages.as_json(delivery.payload)
    return Request(url, signing.headers(keys, message_id(delivery), int(now.timestamp()), body), body)


def send_now(delivery: Delivery, now: datetime) -> Outcome:
    """Send a claimed one, without access to the database."""
    destination = delivery.destination
    if destination.kind == Destination.Kind.EMAIL:
        return mailing.send([delivery])
    try:
        request = _parcels(destination, [delivery], now)[0].request
    except CannotDecrypt as error:
        return Outcome(False, error=str(error))
    assert request is not None
    return send_one(request)


def signing_secrets(destination: Destination, now: datetime) -> list[str]:
    """The newest first, and the previous one while it is still valid."""
    keys = [decrypt(destination.secret_ciphertext)]
    if destination.old_secret_until and destination.old_secret_until > now:
        keys.append(decrypt(destination.old_secret_ciphertext))
    return keys


def message_id(delivery: Delivery) -> str:
    return f"msg_{delivery.message.hex}"


def _send_mails(queues: Sequence[list[Delivery]], now: datetime) -> int:
    tried, begin_until_s = 0, time.monotonic() + mailing.BEGIN_WITHIN_S
    for deliveries in queues:
        done = [mailing.send(deliveries)] if time.monotonic() < begin_until_s else []
        tried += _record_alone([Parcel(deliveries)], done, now)
    return tried


def _record(parcels: Sequence[Parcel], outcomes: Sequence[Outcome], now: datetime) -> int:
    """Store the outcomes; deliveries without one are free again. Returns how many were tried."""
    tried = 0
    for parcel, outcome in zip(parcels, outcomes, strict=False):
        record(parcel.deliveries, outcome, now)
        tried += len(parcel.deliveries)
    left = [delivery.pk for parcel in parcels[len(outcomes) :] for delivery in parcel.deliveries]
    if left:
        Delivery.objects.filter(pk__in=left, claimed_until=now + CLAIM).update(claimed_until=None)
    return tried


@transaction.atomic
def record(deliveries: Sequence[Delivery], outcome: Outcome, now: datetime, *, again: bool = True) -> None:
    """For deliveries of one destination that were sent together and are still claimed. `again`: retry as often as the
    rules allow."""
    destination = Destination.objects.select_for_update().filter(pk=deliveries[0].destination_id).first()
    if destination is None:
        return
    for delivery in deliveries:
        _record_one(delivery, outcome, now, again=again)
    if outcome.delivered:
        busy = again and destination.kind == Destination.Kind.EMAIL
        destination.failing_since, destination.failures = None, 0
        destination.rests_until = now + MAIL_EVERY if busy else None
        destination.delivered_at = now
    elif again:
        destination.failures += 1
        destination.failing_since = destination.failing_since or now
        rest_s = min(_LONGEST_REST_S, _REST_S * 2.0 ** min(destination.failures - 1, 10))
        destination.rests_until = now + timedelta(seconds=rest_s)
    destination.save(update_fields=["failing_since", "failures", "rests_until", "delivered_at"])
    if outcome.gone:
        disable(destination, "It answered 410: it wants no more.", now)
    elif again and _has_failed_for_long(destination, now) and _was_tried(deliveries):
        since = f"{destination.failing_since:%Y-%m-%d %H:%M} UTC"
        disable(destination, f"Nothing was delivered since {since}. The last attempt: {outcome.error}", now)


def _record_one(delivery: Delivery, outcome: Outcome, now: datetime, *, again: bool) -> None:
    attempts = delivery.attempts + 1
    values: dict[str, Any] = {
        "attempts": attempts,
        "claimed_until": None,
        "answer_code": outcome.code,
        "answer": outcome.answer,
        "error": outcome.error[:400],
    }
    if outcome.delivered:
        values |= {"status": Delivery.Status.DELIVERED, "finished_at": now, "next_attempt_at": None}
    elif outcome.gone or not again or attempts >= MAX_ATTEMPTS:
        values |= {"status": Delivery.Status.GIVEN_UP, "finished_at": now, "next_attempt_at": None}
    else:
        values["next_attempt_at"] = now + timedelta(seconds=pause_s(attempts))
    mine = Delivery.objects.filter(pk=delivery.pk, status=Delivery.Status.WAITING)
    mine.filter(claimed_until=delivery.claimed_until).update(**values)


def pause_s(attempts: int) -> float:
    """The pause after so many attempts; with jitter, so that not all retry at once."""
    return _FIRST_S * _FACTOR ** (attempts - 1) * random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311 - no secret


def _was_tried(deliveries: Sequence[Delivery]) -> bool:
    """Often: after a quiet time a single failure says nothing."""
    return max(delivery.attempts for delivery in deliveries) + 1 >= FAILS_OFTEN


def _has_failed_for_long(destination: Destination, now: datetime) -> bool:
    since = destination.failing_since
    return since is not None and now - since >= FAILS_FOR and destination.failures >= FAILS_OFTEN


def disable(destination: Destination, why: str, now: datetime) -> None:
    """By the portal itself; its owner can enable it again."""
    if not Destination.objects.filter(pk=destination.pk, enabled=True).update(enabled=False, disabled_why=why[:400]):
        return
    give_up_waiting(destination, now)
    detail = {"kind": destination.kind, "why": why[:400]}
    record_audit(actor=None, action="destination.disable", target=audited(destination), detail=detail)


def give_up_waiting(destination: Destination, now: datetime) -> None:
    waiting = Delivery.objects.filter(destination=destination, status=Delivery.Status.WAITING)
    waiting.update(
        status=Delivery.Status.GIVEN_UP, finished_at=now, next_attempt_at=None, claimed_until=None, error=TURNED_OFF
    )


def audited(destination: Destination) -> str:
    return f"destination {destination.pk}"
