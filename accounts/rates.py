"""Changes of rates and discounts: from now on or later, never in the past, each audited."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from accounts.audit import record_audit
from accounts.ledger import lock_prices
from accounts.models import Discount, Project, Rate, Resource, User


class NotInThePast(Exception):
    """Past occupancy is billed already: a price begins now or later, and after the previous one."""


def check_start(kind: type[Rate] | type[Discount], valid_from: datetime | None, now: datetime, **which: object) -> None:
    """Raises NotInThePast."""
    start = valid_from or now
    if start < now:
        raise NotInThePast(
            f"begins at {start:%Y-%m-%d %H:%M:%S %Z}, which is in the past; past use keeps its price. "
            "Leave it out to begin now."
        )
    newest = kind.objects.filter(**which, valid_from__lte=now).order_by("-valid_from").first()
    if newest and start <= newest.valid_from:
        raise NotInThePast(f"must be after {newest.valid_from:%Y-%m-%d %H:%M:%S %Z}, when the one in force began.")


def _begin(rows: QuerySet[Rate] | QuerySet[Discount], start: datetime) -> list[str]:
    """Withdraw later prices, and end the one in force; returns the withdrawn beginnings."""
    withdrawn = [at.isoformat() for at in rows.filter(valid_from__gte=start).values_list("valid_from", flat=True)]
    rows.filter(valid_from__gte=start).delete()
    rows.filter(Q(valid_to=None) | Q(valid_to__gt=start)).update(valid_to=start)
    return withdrawn


@transaction.atomic
def set_rate(
    *,
    actor: User | None,
    price_micro_per_hour: int,
    resource: str = Resource.GPU,
    accelerator_type: str = "",
    cluster: str = "",
    valid_from: datetime | None = None,
) -> Rate:
    """A new price; the one in force ends when it begins, and later ones are withdrawn.

    Raises NotInThePast.
    """
    lock_prices(exclusively=True)
    now = timezone.now()  # no entry extends beyond this: those that were being written are done
    which = {"resource": resource, "accelerator_type": accelerator_type, "cluster": cluster}
    check_start(Rate, valid_from, now, **which)
    start = valid_from or now
    withdrawn = _begin(Rate.objects.filter(**which), start)
    rate = Rate.objects.create(**which, price_micro_per_hour=price_micro_per_hour, valid_from=start)
    detail = {
        "price_micro_per_hour": price_micro_per_hour,
        "valid_from": start.isoformat(),
        "withdrawn_from": withdrawn,
    } | ({"cluster": cluster} if cluster else {})
    record_audit(actor=actor, action="rate.set", target=accelerator_type or str(resource), detail=detail)
    return rate


@transaction.atomic
def set_discount(
    *, actor: User | None, project: Project, percent_hundredths: int, valid_from: datetime | None = None
) -> Discount:
    """A new discount of a project and its subprojects; 0 ends one, or an inherited one. Later ones are withdrawn.
    Raises NotInThePast."""
    lock_prices(exclusively=True)
    now = timezone.now()
    check_start(Discount, valid_from, now, project=project)
    start = valid_from or now
    withdrawn = _begin(Discount.objects.filter(project=project), start)
    discount = Discount.objects.create(project=project, percent_hundredths=percent_hundredths, valid_from=start)
    detail = {
        "percent_hundredths": percent_hundredths,
        "valid_from": start.isoformat(),
        "withdrawn_from": withdrawn,
    }
    record_audit(actor=actor, action="discount.set", target=project.key, detail=detail)
    return discount
