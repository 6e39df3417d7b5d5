"""Prices, charges and the ledger are exact."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from django.db import transaction
from django.db.models import Sum
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from accounts import ledger
from accounts.models import AuditEntry, Discount, LedgerEntry, Project, Rate, UsageDay
from accounts.pricing import HOUR_US, PRODUCTS_PER_UNIT, Price, Reduction, amount, by_day, charge, total_product
from accounts.rates import NotInThePast, set_rate

START = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


def at(hours: float) -> datetime:
    return START + hours * HOUR


def test_an_hour_costs_its_price() -> None:
    (one,) = charge(at(0), at(1), [Price(1_500_000, at(-5), None)])
    assert amount(total_product([one])) == Decimal("1.500000")


def test_an_interval_is_split_where_the_price_changes() -> None:
    prices = [Price(1_000_000, at(-1), at(2)), Price(3_000_000, at(2), None)]
    first, second = charge(at(1), at(4), prices)
    assert (first.to_at, second.from_at) == (at(2), at(2))
    assert amount(total_product([first, second])) == Decimal(7)


def test_time_without_a_price_is_free() -> None:
    assert amount(total_product(charge(at(0), at(3), [Price(1_000_000, at(1), at(2))]))) == Decimal(1)


def test_an_empty_interval_costs_nothing() -> None:
    assert charge(at(1), at(1), [Price(1, at(0), None)]) == []


hours = st.integers(min_value=0, max_value=10**7).map(lambda us: START + timedelta(microseconds=us))


@given(
    st.lists(hours, min_size=2, max_size=2, unique=True).map(sorted),
    st.lists(st.tuples(st.integers(0, 10**9), hours, st.none() | hours), max_size=5),
    hours,
)
def test_charges_touch_and_any_cut_costs_the_same(
    ends: list[datetime], rows: list[tuple[int, datetime, datetime | None]], cut: datetime
) -> None:
    prices = [Price(price, start, end) for price, start, end in rows if end is None or end > start]
    whole = charge(ends[0], ends[1], prices)
    assert [c.from_at for c in whole[1:]] == [c.to_at for c in whole[:-1]]
    assert sum(c.held_us for c in whole) == (ends[1] - ends[0]) // timedelta(microseconds=1)
    if ends[0] < cut < ends[1]:
        parts = charge(ends[0], cut, prices) + charge(cut, ends[1], prices)
        assert total_product(parts) == total_product(whole)


def test_rounding_is_half_even_and_only_for_display() -> None:
    unit = int(PRODUCTS_PER_UNIT)
    assert amount(5 * unit // 10**6, 6) == Decimal("0.000005")
    half = unit // 200
    assert (amount(half, 2), amount(3 * half, 2)) == (Decimal("0.00"), Decimal("0.02"))


def test_each_resource_has_its_unit() -> None:
    (hour,) = charge(at(0), at(1), [Price(1_000_000, at(-1), None)])
    assert amount(hour.product("gpu", 100)) == Decimal(1)
    assert amount(hour.product("gpu", 25)) == Decimal("0.25")
    assert amount(hour.product("cpu", 8)) == Decimal(8)
    assert amount(hour.product("memory", 2_560)) == Decimal("2.5")


def test_the_nearest_discount_that_is_valid_counts() -> None:
    own, above = [Reduction(5_000, at(1), at(2))], [Reduction(9_000, at(0), None)]
    parts = charge(at(0), at(3), [Price(1_000_000, at(-1), None)], [own, above])
    assert [p.kept_hundredths for p in parts] == [9_000, 5_000, 9_000]
    assert amount(total_product(parts)) == Decimal("2.3")


@given(
    st.datetimes(datetime(2024, 1, 1), datetime(2027, 1, 1)),  # noqa: DTZ001 - made aware below
    st.integers(0, 10 * 86_400 * 10**6),
    st.sampled_from(["UTC", "Europe/Zurich", "America/St_Johns", "Pacific/Apia"]),
)
def test_days_touch_and_lie_within_their_dates(start: datetime, length_us: int, zone: str) -> None:
    begin = start.replace(tzinfo=UTC)
    end = begin + timedelta(microseconds=length_us)
    parts = by_day(begin, end, ZoneInfo(zone))
    assert [p[1] for p in parts[1:]] == [p[2] for p in parts[:-1]]
    assert sum(((to - since) for _, since, to in parts), timedelta()) == end - begin
    for day, since, to in parts:
        assert since.astimezone(ZoneInfo(zone)).date() == day
        assert (to - timedelta(microseconds=1)).astimezone(ZoneInfo(zone)).date() == day


def held(project: Project, number: int, since: datetime, until: datetime, **quantities: Any) -> ledger.Held:
    job = UUID(int=number)
    return ledger.Held(project.pk, None, job, job, number, "k1", since, until, **quantities)


@pytest.mark.django_db
def test_a_hold_is_entered_once() -> None:
    project = Project.objects.create(key="vision", name="Vision")
    Rate.objects.create(accelerator_type="k1", price_micro_per_hour=2_000_000, valid_from=at(-1))
    for _ in range(2):
        ledger.record_holds([held(project, 1, at(0), at(2))])
    assert amount(ledger.product_sum(LedgerEntry.objects.all())) == Decimal(4)
    assert UsageDay.objects.get().gpu_us_hundredths == 2 * 100 * HOUR_US


@pytest.mark.django_db
def test_a_new_price_follows_the_one_before_and_never_begins_in_the_past() -> None:
    later = timezone.now() + timedelta(days=1)
    set_rate(actor=None, accelerator_type="k1", price_micro_per_hour=1)
    set_rate(actor=None, accelerator_type="k1", price_micro_per_hour=2, valid_from=later)
    with pytest.raises(NotInThePast):
        set_rate(
            actor=None,
            accelerator_type="k1",
            price_micro_per_hour=3,
            valid_from=timezone.now() - timedelta(seconds=1),
        )
    assert ledger.current_prices(timezone.now()) == {"k1": 1}
    assert ledger.current_prices(later) == {"k1": 2}
    assert AuditEntry.objects.filter(action="rate.set").count() == 2


@pytest.mark.django_db
def test_a_price_that_has_not_begun_is_withdrawn_by_one_that_begins_earlier() -> None:
    tomorrow, mistyped = timezone.now() + timedelta(days=1), timezone.now() + timedelta(days=25_000)
    set_rate(actor=None, accelerator_type="k1", price_micro_per_hour=1)
    set_rate(actor=None, accelerator_type="k1", price_micro_per_hour=2, valid_from=mistyped)
    set_rate(actor=None, accelerator_type="k1", price_micro_per_hour=3, valid_from=tomorrow)
    assert ledger.current_prices(timezone.now()) == {"k1": 1}
    assert ledger.current_prices(tomorrow) == ledger.current_prices(mistyped) == {"k1": 3}
    assert AuditEntry.objects.latest("pk").detail["withdrawn_from"] == [mistyped.isoformat()]
    set_rate(actor=None, accelerator_type="k1", price_micro_per_hour=4)
    assert ledger.current_prices(timezone.now()) == ledger.current_prices(mistyped) == {"k1": 4}


#: Moments of a random history, in quarters of an hour over five days.
moments = st.integers(0, 480).map(lambda quarter: START + timedelta(minutes=15 * quarter, microseconds=quarter))


@pytest.mark.django_db
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_the_ledger_is_the_integral_of_holds_rates_and_discounts(data: st.DataObject) -> None:
    """Against a sum over the pieces between all moments at which anything changes, each priced by itself."""
    with transaction.atomic():
        top = Project.objects.create(key="top", name="Top")
        below = Project.objects.create(key="below", name="Below", parent=top)
        rates = {name: _history(data, 10**9) for name in ("gpu", "cpu", "memory")}
        for resource, rows in rates.items():
            for value, since, until in rows:
                kind = "k1" if resource == "gpu" else ""
                Rate.objects.create(
                    resource=resource,
                    accelerator_type=kind,
                    price_micro_per_hour=value,
                    valid_from=since,
                    valid_to=until,
                )
        discounts = {project: _history(data, 10_000) for project in (top, below)}
        for project, rows in discounts.items():
            for value, since, until in rows:
                Discount.objects.create(project=project, percent_hundredths=value, valid_from=since, valid_to=until)
        holds = []
        for number in range(data.draw(st.integers(0, 4))):
            since, until = sorted(data.draw(st.lists(moments, min_size=2, max_size=2, unique=True)))
            quantities = {
                "gpu_hundredths": data.draw(st.sampled_from([100, 30])),
                "cpus": data.draw(st.integers(0, 3)),
                "memory_mib": data.draw(st.integers(0, 3_000)),
            }
            holds.append(held(data.draw(st.sampled_from([top, below])), number, since, until, **quantities))
        for one in holds:
            ledger.record_holds([one])
        expected = sum(
            _integral(
                one, rates, [discounts[below], discounts[top]] if one.project_id == below.pk else [discounts[top]]
            )
            for one in holds
        )
        entered = Fraction(ledger.product_sum(LedgerEntry.objects.all()))
        assert entered == expected * Fraction(PRODUCTS_PER_UNIT)
        assert (UsageDay.objects.aggregate(n=Sum("product"))["n"] or 0) == entered
        gpu_us = sum((one.to_at - one.from_at) // timedelta(microseconds=1) * one.gpu_hundredths for one in holds)
        assert (UsageDay.objects.aggregate(n=Sum("gpu_us_hundredths"))["n"] or 0) == gpu_us
        transaction.set_rollback(True)


History = list[tuple[int, datetime, datetime | None]]


def _history(data: st.DataObject, most: int) -> History:
    """Values one after the other; the last one may still be in force."""
    edges = sorted(data.draw(st.lists(moments, max_size=4, unique=True)))
    ends = [*edges[1:], data.draw(st.sampled_from([None, edges[-1] + HOUR])) if edges else None]
    return [(data.draw(st.integers(0, most)), since, until) for since, until in zip(edges, ends, strict=False)]


def _at(rows: History, moment: datetime) -> int | None:
    return next((value for value, since, until in rows if since <= moment and (until is None or moment < until)), None)


def _integral(one: ledger.Held, rates: dict[str, History], levels: list[History]) -> Fraction:
    """In the currency, from the definition: quantity x hours x price x what discounts leave."""
    rows = [row for history in (*rates.values(), *levels) for row in history]
    edges = {edge for _, since, until in rows for edge in (since, until) if edge} | {one.from_at, one.to_at}
    inside = sorted(edge for edge in edges if one.from_at <= edge <= one.to_at)
    units = {
        "gpu": Fraction(one.gpu_hundredths, 100),
        "cpu": Fraction(one.cpus),
        "memory": Fraction(one.memory_mib, 1_024),
    }
    total = Fraction(0)
    for since, until in itertools.pairwise(inside):
        hours = Fraction((until - since) // timedelta(microseconds=1), HOUR_US)
        off = next((value for level in levels if (value := _at(level, since)) is not None), 0)
        per_hour = sum(units[name] * Fraction(_at(rates[name], since) or 0, 10**6) for name in units)
        total += hours * per_hour * (1 - Fraction(off, 10_000))
    return total
