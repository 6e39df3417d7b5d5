"""Exact money: integers all the way, rounded only where it is shown."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import ROUND_HALF_EVEN, Decimal

#: What one product `price_micro_per_gpu_hour * gpu_us` must be divided by to get the currency.
PRODUCTS_PER_UNIT = Decimal(10**6 * 3_600 * 10**6)
_US = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Price:
    """A price in force from `valid_from` until `valid_to` (None: still)."""

    price_micro_per_gpu_hour: int
    valid_from: datetime
    valid_to: datetime | None


@dataclass(frozen=True, slots=True)
class Charge:
    """One stretch of one GPU at one price."""

    from_at: datetime
    to_at: datetime
    gpu_us: int
    price_micro_per_gpu_hour: int

    @property
    def product(self) -> int:
        return self.gpu_us * self.price_micro_per_gpu_hour


def charge(from_at: datetime, to_at: datetime, prices: Sequence[Price]) -> list[Charge]:
    """The interval split wherever the price changes; time that no price covers costs 0.

    The stretches touch, never overlap, and together are exactly the interval.
    """
    cuts = {from_at, to_at}
    for price in prices:
        cuts |= {edge for edge in (price.valid_from, price.valid_to) if edge and from_at < edge < to_at}
    edges = sorted(cuts)
    return [
        Charge(start, end, (end - start) // _US, _price_at(start, prices)) for start, end in itertools.pairwise(edges)
    ]


def _price_at(at: datetime, prices: Sequence[Price]) -> int:
    """Where validities overlap the one that began last counts."""
    valid = [p for p in prices if p.valid_from <= at and (p.valid_to is None or at < p.valid_to)]
    return max(valid, key=lambda p: p.valid_from).price_micro_per_gpu_hour if valid else 0


def total_product(charges: Iterable[Charge]) -> int:
    return sum(c.product for c in charges)


def amount(product: int | Decimal, places: int = 6) -> Decimal:
    """A sum of products in the currency, rounded half to even for display."""
    return (Decimal(product) / PRODUCTS_PER_UNIT).quantize(Decimal(1).scaleb(-places), ROUND_HALF_EVEN)
