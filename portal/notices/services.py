"""Changes of destinations by their owners, and deliveries that they request."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from accounts.audit import record_audit
from accounts.models import User
from portal.core.problems import FieldProblem, Problems
from portal.material.encryption import encrypt
from portal.notices import addresses, kinds, messages
from portal.notices.deliveries import CLAIM, audited, give_up_waiting, record, send_now
from portal.notices.models import Delivery, Destination
from portal.notices.transport import mailing, signing

MAX_DESTINATIONS = 20
#: How long a replaced secret also signs.
OVERLAP = timedelta(hours=24)
_ADDRESSED_BY_URL = (Destination.Kind.WEBHOOK, Destination.Kind.SLACK)


class NotNow(Exception):
    """The request does not fit the present state."""


@transaction.atomic
def create_destination(
    *, actor: User, kind: str, url: str | None, portal_url: str, values: Mapping[str, Any]
) -> tuple[Destination, str | None]:
    """Returns the destination, and the secret of a webhook. `values`: name, events, own_jobs, project, waiting_minutes,
    enabled. Raises Problems."""
    User.objects.select_for_update(no_key=True).get(pk=actor.pk)
    if Destination.objects.filter(user=actor.pk).count() >= MAX_DESTINATIONS:
        raise _wrong("name", f"would be one too many: you may have {MAX_DESTINATIONS} destinations", "quota")
    row = Destination(user_id=actor.pk, kind=kind, portal_url=portal_url.rstrip("/")[:300], **values)
    _check(row, actor)
    _set_address(row, url)
    secret = signing.new_secret() if kind == Destination.Kind.WEBHOOK else None
    row.secret_ciphertext = encrypt(secret) if secret else ""
    row.save()
    record_audit(actor=actor, action="destination.create", target=audited(row), detail=_audit_detail(row))
    return row, secret


@transaction.atomic
def change_destination(
    *, actor: User, destination: Destination, url: str | None, values: Mapping[str, Any], now: datetime
) -> Destination:
    """Without a `url` the address stays. Enabling it resets its failures; disabling it drops waiting deliveries."""
    row = Destination.objects.select_for_update(of=("self",), no_key=True).get(pk=destination.pk)
    was_enabled = row.enabled
    for name, value in values.items():
        setattr(row, name, value)
    if not actor.is_superuser:  # a former administrator may still change the rest
        wanted = set(values.get("events") or ())
        row.events = [kind for kind in row.events if kind in wanted or kind not in kinds.OF_ADMINISTRATORS]
    _check(row, actor)
    if url is not None:
        _set_address(row, url)
    if url is not None or (row.enabled and not was_enabled):
        row.failing_since, row.failures, row.rests_until, row.disabled_why = None, 0, None, ""
    row.save()
    if not row.enabled:
        give_up_waiting(row, now)
    detail = _audit_detail(row) | {"address_changed": url is not None}
    record_audit(actor=actor, action="destination.change", target=audited(row), detail=detail)
    return row


@transaction.atomic
def remove_destination(*, actor: User, destination: Destination) -> None:
    """With its log; waiting deliveries are not sent any more."""
    # before its deliveries, in the same order as recording does
    Destination.objects.select_for_update().get(pk=destination.pk)
    record_audit(
        actor=actor, action="destination.remove", target=audited(destination), detail=_audit_detail(destination)
    )
    destination.delete()


@transaction.atomic
def rotate_secret(*, actor: User, destination: Destination, now: datetime) -> str:
    """A new secret; the previous one also signs for a day."""
    row = Destination.objects.select_for_update(of=("self",), no_key=True).get(pk=destination.pk)
    if row.kind != Destination.Kind.WEBHOOK:
        raise NotNow("Only webhooks are signed: this destination has no secret.")
    if row.old_secret_until is not None and row.old_secret_until > now:
        raise NotNow("It was given a new secret within the last day, and the one before still signs too.")
    secret = signing.new_secret()
    row.old_secret_ciphertext, row.old_secret_until = row.secret_ciphertext, now + OVERLAP
    row.secret_ciphertext = encrypt(secret)
    row.save(update_fields=["secret_ciphertext", "old_secret_ciphertext", "old_secret_until"])
    record_audit(actor=actor, action="destination.rotate", target=audited(row))
    return secret


def send_test(destination: Destination, now: datetime) -> Delivery:
    """Immediately, enabled or not, and once only: the delivery holds the response."""
    payload = messages.of_test(destination, now)
    delivery = Delivery.objects.create(
        destination=destination,
        event=kinds.TEST,
        payload=messages.addressed(payload, destination),
        created_at=now,
        next_attempt_at=now,
        claimed_until=now + CLAIM,
    )
    record([delivery], send_now(delivery, now), now, again=False)
    delivery.refresh_from_db()
    return delivery


@transaction.atomic
def send_again(*, delivery: Delivery, now: datetime) -> Delivery:
    """A delivery that was given up waits again, with all its attempts. Raises NotNow."""
    row = Delivery.objects.select_for_update(of=("self",)).select_related("destination").get(pk=delivery.pk)
    if row.status != Delivery.Status.GIVEN_UP:
        raise NotNow("It was delivered." if row.status == Delivery.Status.DELIVERED else "It is still being tried.")
    if not row.destination.enabled:
        raise NotNow("Its destination is off; turn it on first.")
    row.status, row.attempts, row.next_attempt_at, row.finished_at = Delivery.Status.WAITING, 0, now, None
    row.created_at = now
    row.save(update_fields=["status", "attempts", "next_attempt_at", "finished_at", "created_at"])
    Destination.objects.filter(pk=row.destination_id).update(rests_until=None)
    return row


def _check(row: Destination, actor: User) -> None:
    """Whether the values fit together, and which notices this person may get. Raises Problems."""
    if not row.own_jobs and row.project is None:
        raise _wrong("project", "is needed for notices about jobs that are not yours", "missing")
    reserved = kinds.OF_ADMINISTRATORS & set(row.events)
    if reserved and not actor.is_superuser:
        raise _wrong("events", f"{', '.join(sorted(reserved))} is for administrators of the cluster", "forbidden")


def _set_address(row: Destination, url: str | None) -> None:
    if row.kind not in _ADDRESSED_BY_URL:
        _check_mail(row, url)
        return
    if url is None:
        raise _wrong("url", f"must be given for a destination of kind {row.kind}", "missing")
    try:
        parsed = addresses.check_url(url)
    except ValueError as error:
        raise _wrong("url", str(error), "invalid") from None
    row.address_ciphertext, row.shown_address = encrypt(url), addresses.shown(parsed)[:300]


def _check_mail(row: Destination, url: str | None) -> None:
    if url is not None:
        raise _wrong("url", "must be left out: e-mail goes to the address of your account", "invalid")
    if not mailing.is_set_up():
        raise _wrong("kind", f"cannot be email: {mailing.NOT_SET_UP}", "unavailable")
    if row.user.kind == User.Kind.SERVICE:
        raise _wrong("kind", "cannot be email: a service account has no address", "unavailable")


def _wrong(field: str, message: str, code: str) -> Problems:
    return Problems([FieldProblem(field, message, code)])


def _audit_detail(row: Destination) -> dict[str, Any]:
    return {
        "name": row.name,
        "kind": row.kind,
        "address": row.shown_address,
        "events": list(row.events),
        "own_jobs": row.own_jobs,
        "project": row.project.key if row.project else None,
        "enabled": row.enabled,
    }
