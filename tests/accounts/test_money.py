"""Prices, charges and the ledger are exact."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounts import ledger
from accounts.models import LedgerEntry, Project, Rate
from accounts.pricing import Price, amount, charge, total_product
from accounts.services import RateNotAfter, set_rate

START = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


def at(hours: float) -> datetime:
    return START + hours * HOUR


def test_an_hour_costs_its_price() -> None:
    (one,) = charge(at(0), at(1), [Price(1_500_000, at(-5), None)])
    assert amount(one.product) == Decimal("1.500000")


def test_an_interval_is_split_where_the_price_changes() -> None:
    prices = [Price(1_000_000, at(-1), at(2)), Price(3_000_000, at(2), None)]
    first, second = charge(at(1), at(4), prices)
    assert (first.to_at, second.from_at) == (at(2), at(2))
    assert amount(first.product + second.product) == Decimal(7)


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
    assert sum(c.gpu_us for c in whole) == (ends[1] - ends[0]) // timedelta(microseconds=1)
    if ends[0] < cut < ends[1]:
        parts = charge(ends[0], cut, prices) + charge(cut, ends[1], prices)
        assert total_product(parts) == total_product(whole)


def test_rounding_is_half_even_and_only_for_display() -> None:
    assert amount(5 * 10**6 * 3_600, 6) == Decimal("0.000005")
    half = 10**6 * 3_600 * 10**6 // 200
    assert (amount(half, 2), amount(3 * half, 2)) == (Decimal("0.00"), Decimal("0.02"))


@pytest.mark.django_db
def test_a_hold_is_entered_once() -> None:
    project = Project.objects.create(key="vision", name="Vision")
    Rate.objects.create(accelerator_type="k1", price_micro_per_gpu_hour=2_000_000, valid_from=at(-1))
    job, run = uuid4(), uuid4()
    for _ in range(2):
        ledger.record_hold(
            project_id=project.pk,
            user_id=None,
            job_id=job,
            run_id=run,
            hold_id=1,
            accelerator_type="k1",
            from_at=at(0),
            to_at=at(2),
        )
    assert amount(ledger.product_sum(LedgerEntry.objects.all())) == Decimal(4)
    (row,) = ledger.sums_by(LedgerEntry.objects.all(), "job_id")
    assert (row["job_id"], row["held_us"]) == (job, 2 * 3_600 * 10**6)


@pytest.mark.django_db
def test_a_new_price_follows_the_one_before() -> None:
    set_rate(actor=None, rate=Rate(accelerator_type="k1", price_micro_per_gpu_hour=1, valid_from=at(0)))
    set_rate(actor=None, rate=Rate(accelerator_type="k1", price_micro_per_gpu_hour=2, valid_from=at(5)))
    with pytest.raises(RateNotAfter):
        set_rate(actor=None, rate=Rate(accelerator_type="k1", price_micro_per_gpu_hour=3, valid_from=at(5)))
    assert ledger.current_prices(at(1)) == {"k1": 1}
    assert ledger.current_prices(at(6)) == {"k1": 2}
    assert [
        p.price_micro_per_gpu_hour for p in sorted(ledger.prices_for("k1", at(4), at(6)), key=lambda p: p.valid_from)
    ] == [1, 2]
