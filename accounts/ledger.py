"""The ledger: what was held, when, at what price. Gets plain values, knows no jobs."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db.models import DecimalField, ExpressionWrapper, F, Q, QuerySet, Sum
from django.db.models.functions import Cast

from accounts.models import LedgerEntry, Rate
from accounts.pricing import Price, charge

_EXACT = DecimalField(max_digits=60, decimal_places=0)
_PRODUCT = ExpressionWrapper(Cast("gpu_us", _EXACT) * Cast("price_micro_per_gpu_hour", _EXACT), output_field=_EXACT)


def prices_for(accelerator_type: str, from_at: datetime, to_at: datetime) -> list[Price]:
    """Every price of the type that is valid at some time in the interval."""
    rates = Rate.objects.filter(
        Q(valid_to=None) | Q(valid_to__gt=from_at), accelerator_type=accelerator_type, valid_from__lt=to_at
    )
    return [Price(r.price_micro_per_gpu_hour, r.valid_from, r.valid_to) for r in rates]


def current_prices(now: datetime) -> dict[str, int]:
    """Price in micro-units per GPU-hour by accelerator type."""
    rates = Rate.objects.filter(Q(valid_to=None) | Q(valid_to__gt=now), valid_from__lte=now).order_by("valid_from")
    return {r.accelerator_type: r.price_micro_per_gpu_hour for r in rates}


def record_hold(
    *,
    project_id: int,
    user_id: int | None,
    job_id: UUID,
    run_id: UUID,
    hold_id: int,
    accelerator_type: str,
    from_at: datetime,
    to_at: datetime,
) -> None:
    """Enter one ended hold. A second call for the same hold changes nothing."""
    LedgerEntry.objects.bulk_create(
        [
            LedgerEntry(
                project_id=project_id,
                user_id=user_id,
                job_id=job_id,
                run_id=run_id,
                hold_id=hold_id,
                accelerator_type=accelerator_type,
                from_at=c.from_at,
                to_at=c.to_at,
                gpu_us=c.gpu_us,
                price_micro_per_gpu_hour=c.price_micro_per_gpu_hour,
            )
            for c in charge(from_at, to_at, prices_for(accelerator_type, from_at, to_at))
        ],
        ignore_conflicts=True,
    )


def product_sum(entries: QuerySet[LedgerEntry]) -> Decimal:
    """Exact sum over entries, in products (see `pricing.amount`)."""
    return entries.aggregate(total=Sum(_PRODUCT))["total"] or Decimal(0)


def sums_by(entries: QuerySet[LedgerEntry], *fields: str) -> list[dict[str, Any]]:
    """Per group: `products` and `gpu_us`, one query."""
    return list(entries.values(*fields).annotate(products=Sum(_PRODUCT), held_us=Sum(F("gpu_us"))).order_by(*fields))
