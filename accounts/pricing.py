"""Exact money: integers throughout, rounded only for display.

A cost is stored as a product of integers, `quantity * microseconds * price * kept * weight`: the quantity in hundredths
of a GPU, CPUs or MiB, the price in millionths of the currency per hour of a GPU, a CPU or a GiB, `kept` in hundredths
of a percent after a discount. The weight brings all three to one unit.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, tzinfo
from decimal import ROUND_HALF_EVEN, Decimal

#: No discount, in hundredths of a percent.
WHOLE = 10_000
#: 25,600 parts: a GPU has 100 hundredths and a GiB 1,024 MiB.
WEIGHTS: Mapping[str, int] = {"gpu": 256, "cpu": 25_600, "memory": 25}
HOUR_US = 3_600 * 10**6
#: Divisor of a product to get the currency.
PRODUCTS_PER_UNIT = Decimal(10**6 * HOUR_US * WHOLE * 25_600)
_US = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Price:
    """A price in force from `valid_from` until `valid_to` (None: still)."""

    price_micro_per_hour: int
    valid_from: datetime
    valid_to: datetime | None


@dataclass(frozen=True, slots=True)
class Reduction:
    """A discount of one level of projects: the fraction of a price left, in hundredths of a percent."""

    kept_hundredths: int
    valid_from: datetime
    valid_to: datetime | None


@dataclass(frozen=True, slots=True)
class Charge:
    """An interval at one price."""

    from_at: datetime
    to_at: datetime
    price_micro_per_hour: int
    kept_hundredths: int = WHOLE

    @property
    def held_us(self) -> int:
        return (self.to_at - self.from_at) // _US

    def product(self, resource: str, quantity: int) -> int:
        return quantity * self.held_us * self.price_micro_per_hour * self.kept_hundredths * WEIGHTS[resource]


def charge(
    from_at: datetime,
    to_at: datetime,
    prices: Sequence[Price],
    levels: Sequence[Sequence[Reduction]] = (),
    own: Sequence[Price] = (),
) -> list[Charge]:
    """The interval, split where a price or a discount changes; time without a price costs 0.

    While one of `own`, the cluster's prices, is valid, it precedes `prices`, those of all clusters. `levels` are the
    discounts of a project and its ancestors, nearest first: the nearest valid one counts. The parts are adjacent, never
    overlap, and together are exactly the interval.
    """
    cuts = {from_at, to_at}
    rows: list[Price | Reduction] = [*own, *prices, *itertools.chain(*levels)]
    for row in rows:
        cuts |= {edge for edge in (row.valid_from, row.valid_to) if edge and from_at < edge < to_at}
    return [
        Charge(start, end, _price_at(start, own, prices), _kept_at(start, levels))
        for start, end in itertools.pairwise(sorted(cuts))
    ]


def _in_force(row: Price | Reduction, at: datetime) -> bool:
    return row.valid_from <= at and (row.valid_to is None or at < row.valid_to)


def _price_at(at: datetime, *cards: Sequence[Price]) -> int:
    """From the first list with one; if validities overlap, the one that began last applies."""
    for card in cards:
        if valid := [p for p in card if _in_force(p, at)]:
            return max(valid, key=lambda p: p.valid_from).price_micro_per_hour
    return 0


def _kept_at(at: datetime, levels: Sequence[Sequence[Reduction]]) -> int:
    nearest = nearest_at(at, levels)
    return nearest[1] if nearest else WHOLE


def nearest_at(at: datetime, levels: Sequence[Sequence[Reduction]]) -> tuple[int, int] | None:
    """(index of the nearest level with a valid discount, the fraction of a price left)"""
    for place, level in enumerate(levels):
        valid = [r for r in level if _in_force(r, at)]
        if valid:
            return place, max(valid, key=lambda r: r.valid_from).kept_hundredths
    return None


def total_product(charges: Iterable[Charge], resource: str = "gpu", quantity: int = 100) -> int:
    return sum(c.product(resource, quantity) for c in charges)


def amount(product: int | Decimal, places: int = 6) -> Decimal:
    """A sum of products in the currency, rounded half to even for display."""
    return (Decimal(product) / PRODUCTS_PER_UNIT).quantize(Decimal(1).scaleb(-places), ROUND_HALF_EVEN)


def from_micro(micro: int) -> Decimal:
    """Millionths of the currency in the currency, exactly."""
    return Decimal(micro).scaleb(-6)


def midnight(day: date, zone: tzinfo) -> datetime:
    return datetime.combine(day, time(), zone)


def by_day(from_at: datetime, to_at: datetime, zone: tzinfo) -> list[tuple[date, datetime, datetime]]:
    """The interval cut at the midnights of a time zone: (day, from, to), adjacent."""
    parts, start = [], from_at
    while start < to_at:
        day = start.astimezone(zone).date()
        end = min(to_at, midnight(day + timedelta(days=1), zone).astimezone(start.tzinfo))
        parts.append((day, start, end))
        start = end
    return parts
