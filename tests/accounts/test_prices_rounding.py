"""Prices, periods and limits exactly at their boundaries."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID

import pytest
from django.utils import timezone

from accounts import ledger, quotas
from accounts.levels import Levels
from accounts.models import BudgetNotice, Discount, LedgerEntry, Project, Quota, Rate, User
from accounts.pricing import PRODUCTS_PER_UNIT
from accounts.quotas import LiveJob
from tests.cases import in_turn

START = datetime(2026, 1, 7, 12, tzinfo=UTC)  # a Wednesday
HOUR, MICRO = timedelta(hours=1), timedelta(microseconds=1)


@pytest.fixture
def project(db: None) -> Project:
    return Project.objects.create(key="vision", name="Vision")


def price(micro: int, hours: float = -1, *, until: float | None = None, **more: Any) -> Rate:
    ends = None if until is None else START + until * HOUR
    values = {"accelerator_type": "k1", "price_micro_per_hour": micro, "valid_from": START + hours * HOUR}
    return Rate.objects.create(**values | {"valid_to": ends} | more)


def held(project: Project, since: float = 0, until: float = 1, hold: int = 1, **more: Any) -> ledger.Held:
    job = UUID(int=1)
    return ledger.Held(project.pk, None, job, job, hold, "k1", START + since * HOUR, START + until * HOUR, **more)


# Prices ----------------------------------------------------------------------------------------------------


@in_turn(("asked", "found"), [(-MICRO, {}), (timedelta(), {"k1": 2}), (HOUR - MICRO, {"k1": 2}), (HOUR, {"k1": 3})])
def test_a_price_is_in_force_from_its_first_moment_to_before_its_end(
    project: Project, asked: timedelta, found: dict[str, int]
) -> None:
    price(2, 0, until=1)
    price(3, 1)
    assert ledger.current_prices(START + asked) == found


def test_a_price_ends_with_nothing_after_it(project: Project) -> None:
    price(2, 0, until=1)
    assert ledger.current_prices(START + HOUR - MICRO) == {"k1": 2}
    assert ledger.current_prices(START + HOUR) == {}


def test_a_clusters_own_price_goes_before_a_newer_one_of_all(project: Project) -> None:
    price(7, -3, cluster="east")
    price(2, -1)
    price(9, -2, cluster="west")
    price(5, -1, resource="cpu", accelerator_type="")
    assert ledger.current_prices(START) == {"k1": 2}
    assert ledger.current_prices(START, "east") == {"k1": 7}
    assert ledger.current_prices(START, "north") == {"k1": 2}
    assert ledger.PriceBook(START).price_at(project.pk, "gpu", "k1", START, "east") == (7, 10_000)
    assert ledger.PriceBook(START).price_at(project.pk, "gpu", "k1", START, "north") == (2, 10_000)
    assert ledger.PriceBook(START).price_at(project.pk, "cpu", "k1", START) == (5, 10_000)


def test_a_book_knows_a_price_that_ends_just_after_it_begins_and_none_that_ended(project: Project) -> None:
    price(2, -2, until=0)
    price(3, -1, until=1, accelerator_type="k2")
    book = ledger.PriceBook(START)
    assert book.price_at(project.pk, "gpu", "k1", START) == (0, 10_000)
    assert book.price_at(project.pk, "gpu", "k2", START) == (3, 10_000)


def test_a_stretch_costs_its_part_from_a_time_on(project: Project) -> None:
    price(1_000_000)
    book, one = ledger.PriceBook(START), held(project, 0, 2)
    whole = book.product(one)
    assert Decimal(whole) / Decimal(PRODUCTS_PER_UNIT) == 2
    assert book.product(one, START - HOUR) == whole
    assert book.product(one, START + HOUR) * 2 == whole
    assert (book.product(one, START + 2 * HOUR), book.product(one, START + 3 * HOUR)) == (0, 0)
    assert book.product(one, START + 2 * HOUR - MICRO) > 0
    per_us = book.product_per_us(project.pk, "k1", START, gpu_hundredths=100)
    assert per_us * 2 * 3_600 * 10**6 == whole


def test_what_a_gang_costs_counts_its_cpus_and_memory(project: Project) -> None:
    for resource in ("cpu", "memory"):
        price(1_000_000, resource=resource, accelerator_type="")
    book = ledger.PriceBook(START)

    def cost(**more: Any) -> int:
        return book.product_per_us(project.pk, "k1", START, gpu_hundredths=100, **more)

    assert (cost(), cost(cpus=1) > 0, cost(memory_mib=1) > 0) == (0, True, True)
    assert cost(cpus=2, memory_mib=3) == cost(cpus=2) + cost(memory_mib=3)
    one = held(project, 0, 1, cpus=2, memory_mib=3)
    assert book.product(one) == 3_600 * 10**6 * cost(cpus=2, memory_mib=3)


def test_a_discount_of_nothing_is_none_and_the_nearest_counts(project: Project) -> None:
    below = Project.objects.create(key="deep", name="Deep", parent=project)
    at = {"valid_from": START - HOUR}
    Discount.objects.create(project=project, percent_hundredths=2_500, **at)
    assert ledger.PriceBook(START).discount_at(below.pk, START) == (project.pk, 7_500)
    Discount.objects.create(project=below, percent_hundredths=1, **at)
    assert ledger.PriceBook(START).discount_at(below.pk, START) == (below.pk, 9_999)
    Discount.objects.filter(project=below).update(percent_hundredths=0)
    assert ledger.PriceBook(START).discount_at(below.pk, START) is None
    assert ledger.PriceBook(START).discount_at(project.pk, START) == (project.pk, 7_500)


def test_a_book_asks_for_the_tree_of_projects_only_where_there_are_discounts(
    project: Project, django_assert_num_queries: Any
) -> None:
    Discount.objects.create(project=project, percent_hundredths=1, valid_from=START - 2 * HOUR, valid_to=START - HOUR)
    with django_assert_num_queries(2):
        assert ledger.PriceBook(START).price_at(project.pk, "gpu", "k1", START) == (0, 10_000)
    Discount.objects.create(project=project, percent_hundredths=2_500, valid_from=START - HOUR)
    with django_assert_num_queries(3):
        assert ledger.PriceBook(START).price_at(project.pk, "gpu", "k1", START) == (0, 7_500)


def test_a_hold_is_entered_once_and_an_empty_one_never(project: Project) -> None:
    price(1_000_000)
    empty, first, second = held(project, 0, 0, 1), held(project, 0, 1, 2), held(project, 1, 2, 3)
    ledger.record_holds([empty])
    assert not LedgerEntry.objects.exists()
    ledger.record_holds([first])
    ledger.record_holds([empty, first, second])
    assert list(LedgerEntry.objects.order_by("hold_id").values_list("hold_id", flat=True)) == [2, 3]


def test_free_gpus_are_entered_and_free_cpus_are_not(project: Project) -> None:
    ledger.record_holds([held(project, cpus=4, memory_mib=5)])
    assert [(one.resource, one.quantity) for one in LedgerEntry.objects.all()] == [("gpu", 100)]
    price(1, resource="cpu", accelerator_type="")
    ledger.record_holds([held(project, hold=2, cpus=4, memory_mib=5)])
    assert {(one.resource, one.quantity) for one in LedgerEntry.objects.filter(hold_id=2)} == {("gpu", 100), ("cpu", 4)}
    price(1, resource="memory", accelerator_type="")
    ledger.record_holds([held(project, hold=3)])  # of what is not held there is no entry, whatever it costs
    assert [(one.resource, one.quantity) for one in LedgerEntry.objects.filter(hold_id=3)] == [("gpu", 100)]


def test_entries_reach_back_to_the_price_at_the_beginning_of_the_earliest(project: Project) -> None:
    price(1_000_000, -9, until=-4)
    price(3_000_000, -4)
    ledger.record_holds([held(project, 0, 1, 1), held(project, -5, -3, 2)])
    found = LedgerEntry.objects.filter(hold_id=2).order_by("from_at").values_list("price_micro_per_hour", flat=True)
    assert list(found) == [1_000_000, 3_000_000]
    assert ledger.products_by_job([UUID(int=1), UUID(int=2)]) == {
        UUID(int=1): ledger.product_sum(LedgerEntry.objects.all())
    }


# Periods ---------------------------------------------------------------------------------------------------


@in_turn(
    ("period", "moment", "first", "after"),
    [
        ("day", "2026-01-07T00:00:00", "2026-01-07", "2026-01-08"),
        ("day", "2026-01-07T23:59:59.999999", "2026-01-07", "2026-01-08"),
        ("week", "2026-01-05T00:00:00", "2026-01-05", "2026-01-12"),  # a Monday
        ("week", "2026-01-07T12:00:00", "2026-01-05", "2026-01-12"),
        ("week", "2026-01-11T23:59:59", "2026-01-05", "2026-01-12"),  # a Sunday
        ("week", "2026-01-12T00:00:00", "2026-01-12", "2026-01-19"),
        ("month", "2026-01-01T00:00:00", "2026-01-01", "2026-02-01"),
        ("month", "2026-01-31T23:59:00", "2026-01-01", "2026-02-01"),
        ("month", "2028-02-29T12:00:00", "2028-02-01", "2028-03-01"),
        ("month", "2026-12-31T12:00:00", "2026-12-01", "2027-01-01"),
    ],
)
def test_a_period_has_its_first_and_not_its_last_moment(period: str, moment: str, first: str, after: str) -> None:
    zone = timezone.get_default_timezone()
    at, wanted, end = (datetime.fromisoformat(text).replace(tzinfo=zone) for text in (moment, first, after))
    assert quotas.period_of(period, at) == (wanted, end)
    assert wanted <= at < end


# Limits ----------------------------------------------------------------------------------------------------


def quota(kind: str = "gpus", limit: int = 4, **more: Any) -> Quota:
    return Quota(kind=kind, limit=limit, **{"project": Project(key="vision", name="Vision"), "hard": True} | more)


@in_turn(
    ("limit_micro", "used", "said"),
    [
        (1_000_000, Fraction(1_999_999), "1.99"),
        (1_000_000, Fraction(1_995_000), "1.99"),
        (1_000_000, Fraction(0), "0.00"),
        (1_234_500, Fraction(999_999), "0.9999"),
    ],
)
def test_use_of_money_is_rounded_down(limit_micro: int, used: Fraction, said: str) -> None:
    assert quotas.shown(quota("money", limit_micro, period="month"), used) == said


@in_turn(
    ("seconds", "said"),
    [
        (3_599, "0.99972"),
        (3_600, "1"),
        (3_600 * Fraction(1_999, 1_000), "1.99"),
        (Fraction(1, 100), "0"),
        (36_000, "10"),
    ],
)
def test_use_of_hours_is_rounded_down(seconds: Fraction | int, said: str) -> None:
    assert quotas.shown(quota("gpu_hours", period="day"), seconds) == said


@in_turn(("present", "count", "refused"), [(0, 1, False), (2, 1, False), (3, 1, True), (0, 2, False), (1, 2, True)])
def test_gpus_at_once_reach_the_limit_and_not_beyond(present: int, count: int, refused: bool) -> None:
    said = quotas.refusal(quota(limit=4), Fraction(present), min_gpus=2, types=(), currency="USD", count=count)
    assert bool(said) == refused


@in_turn(("min_gpus", "never"), [(4, False), (5, True)])
@in_turn("hard", [True, False])
def test_a_job_as_large_as_the_limit_may_come_and_a_larger_one_never(min_gpus: int, never: bool, hard: bool) -> None:
    said = quotas.refusal(quota(hard=hard), Fraction(0), min_gpus=min_gpus, types=(), currency="USD")
    assert ("can never hold" in (said or "")) == never
    assert quotas.refusal(quota("running_jobs", hard=hard), Fraction(0), min_gpus=9, types=(), currency="") is None


@in_turn("kind", ["queued_jobs", "running_jobs"])
@in_turn(
    ("present", "count", "said"),
    [(3, 1, None), (4, 1, "this is one more"), (2, 2, None), (3, 2, "2 jobs more"), (4, 2, "these are 2 more")],
)
def test_jobs_at_once_reach_the_limit_and_not_beyond(kind: str, present: int, count: int, said: str | None) -> None:
    found = quotas.refusal(quota(kind), Fraction(present), min_gpus=1, types=(), currency="", count=count)
    assert (found is None) if said is None else (said in (found or ""))
    assert quotas.refusal(quota(kind, hard=False), Fraction(9), min_gpus=1, types=(), currency="") is None


@in_turn(("used", "closed", "waits"), [(99, False, False), (99, True, True), (100, False, True)])
def test_a_period_is_used_up_at_exactly_its_limit(used: int, closed: bool, waits: bool) -> None:
    row = quota("gpu_hours", 100, period="week")
    spent = quotas.spent_sentence(row, Fraction(used), START, "USD", closed=closed)
    refused = quotas.refusal(row, Fraction(used), min_gpus=1, types=(), currency="USD", closed=closed)
    assert (bool(spent), bool(refused)) == (waits, waits)
    assert ("2026-01-12 00:00" in (spent or "")) == waits
    for count, words in ((1, "What this job uses"), (2, "What these jobs use")):
        many = quotas.refusal(row, Fraction(100), min_gpus=1, types=(), currency="USD", count=count)
        assert words in (many or "")
    assert quotas.spent_sentence(quota(limit=1), Fraction(9), START, "USD") is None


@in_turn(("over", "said"), [(0, ""), (3_600, "1 more than it")])
def test_what_a_period_is_over_is_said(over: int, said: str) -> None:
    text = quotas.spent_sentence(quota("gpu_hours", 3_600, period="day"), Fraction(3_600 + over), START, "")
    assert text is not None
    assert (said in text) if said else ("more than it" not in text)


def live(**more: Any) -> LiveJob:
    values: dict[str, Any] = {"project_id": 1, "user_id": 7, "waiting": False, "min_gpus": 2, "held": {"k1": 3}}
    return LiveJob(**values | more)


@in_turn(
    ("kind", "columns", "job", "takes"),
    [
        ("gpus", {}, live(), 3),
        ("gpus", {}, live(min_gpus=5), 5),
        ("gpus", {"hard": False}, live(min_gpus=5), 3),
        ("gpus", {}, live(held={}, waiting=True), 2),
        ("gpus", {"accelerator_type": "k1"}, live(held={"k1": 1, "k2": 8}), 1),
        ("gpus", {"accelerator_type": "k1"}, live(held={"k2": 8}, types=("k1",)), 2),
        ("gpus", {"accelerator_type": "k1"}, live(held={}, types=("k1", "k2")), 0),
        ("queued_jobs", {}, live(), 0),
        ("queued_jobs", {}, live(waiting=True), 1),
        ("running_jobs", {}, live(waiting=True), 1),
        ("running_jobs", {"hard": False}, live(waiting=True), 0),
        ("running_jobs", {"hard": False}, live(), 1),
    ],
)
def test_what_a_job_takes_of_a_limit(kind: str, columns: dict[str, Any], job: LiveJob, takes: int) -> None:
    assert quotas.takes(quota(kind, **columns), job) == takes
    row = Quota(kind=kind, limit=9, user_id=7, **{"hard": True} | columns)
    assert quotas.used(row, Levels({}), [live(user_id=8), job, job], {}) == 2 * takes


def test_only_the_use_of_those_whom_a_limit_is_on_counts(project: Project) -> None:
    below = Project.objects.create(key="deep", name="Deep", parent=project)
    other = Project.objects.create(key="speech", name="Speech")
    hour = 3_600 * 100 * 10**6
    unit = Decimal(int(PRODUCTS_PER_UNIT))
    spending: quotas.Spending = {
        (project.pk, 1): (hour, unit),
        (below.pk, 2): (2 * hour, 2 * unit),
        (other.pk, 1): (4 * hour, 4 * unit),
    }
    levels = Levels.load()

    def used(**where: Any) -> tuple[int, int]:
        hours, money = (Quota(kind=kind, period="day", limit=1, **where) for kind in ("gpu_hours", "money"))
        found = quotas.used(hours, levels, [], spending) / 3_600, quotas.used(money, levels, [], spending) / 10**6
        return int(found[0]), int(found[1])

    assert used(project=project) == (3, 3)
    assert used(project=below) == (2, 2)
    assert used(user_id=1) == (5, 5)
    assert used(project=project, user_id=1) == (1, 1)
    assert used(project=other, user_id=2) == (0, 0)


def test_the_limits_that_bind_are_ones_own_and_those_above(project: Project) -> None:
    below = Project.objects.create(key="deep", name="Deep", parent=project)
    Quota.objects.all().delete()
    ana, bo = (User.objects.create_user(f"{name}@example.org", "x") for name in ("ana", "bo"))

    def add(**where: Any) -> Quota:
        return Quota.objects.create(kind="money", period="day", limit=1, **where)

    inner, outer = add(project=below), add(project=project)
    mine, mine_here = add(user=ana), add(project=below, user=ana)
    add(project=below, user=bo)
    add(user=bo)
    Quota.objects.create(kind="gpus", limit=1, project=below)
    found = list(quotas.binding(below, ana).filter(kind="money"))
    assert set(found) == {inner, outer, mine, mine_here}
    assert found.index(outer) < found.index(inner)
    assert set(quotas.binding(project, ana)) == {outer, mine}
    assert set(quotas.budgets(Project.objects.filter(pk=below.pk), ana)) == {inner, outer, mine, mine_here}
    assert set(quotas.budgets(Project.objects.filter(pk=project.pk), ana)) == {outer, mine}


def test_notices_are_those_of_the_present_period_and_of_a_limit_that_was_not_raised(project: Project) -> None:
    day = Quota.objects.create(project=project, kind="money", period="day", limit=10)
    week = Quota.objects.create(project=project, kind="money", period="week", limit=10)
    begin = {period: quotas.period_of(period, START)[0] for period in ("day", "week")}

    def tell(row: Quota, period_start: datetime, percent: int, limit: int = 10) -> None:
        BudgetNotice.objects.create(quota=row, period_start=period_start, percent=percent, limit=limit, at=START)

    tell(day, begin["day"], 80)
    tell(day, begin["day"] - timedelta(days=1), 100)
    tell(week, begin["week"], 100)
    assert set(quotas.notices_of(START)) == {(day.pk, 80), (week.pk, 100)}
    assert quotas.closed_budgets(START) == {week.pk}
    Quota.objects.filter(pk=week.pk).update(limit=11)
    assert set(quotas.notices_of(START)) == {(day.pk, 80)}
    tell(week, begin["day"], 80)  # the beginning of another kind of period
    assert set(quotas.notices_of(START)) == {(day.pk, 80)}


def test_what_refuses_says_each_of_its_sentences() -> None:
    assert str(quotas.QuotaExceeded([("gpus", "Too many."), ("project", "Too late.")])) == "Too many. Too late."
    assert quotas.amount(quota("queued_jobs", 1)) == f"1 {quotas.name_of(quota('queued_jobs'))}".removesuffix("s")
    assert "per" not in quotas.name_of(quota("running_jobs"))


@pytest.mark.django_db
def test_where_there_is_no_project_no_budget_is_known() -> None:
    Project.objects.all().delete()
    assert quotas.month_budget_micro() is None


def test_limits_of_whole_projects_are_read_without_those_of_people_and_types(project: Project) -> None:
    Quota.objects.all().delete()
    ana = User.objects.create_user("ana@example.org", "x")
    other = Project.objects.create(key="speech", name="Speech")
    Quota.objects.all().delete()
    Quota.objects.create(project=project, kind="gpus", limit=8)
    Quota.objects.create(project=project, kind="gpus", limit=2, user=ana)
    Quota.objects.create(project=project, kind="gpus", limit=3, accelerator_type="k1")
    Quota.objects.create(kind="gpus", limit=5, user=ana)
    Quota.objects.create(project=other, kind="running_jobs", limit=6)
    assert quotas.gpu_limits() == {project.pk: 8}
    Quota.objects.create(project=project, kind="money", period="month", limit=100)
    Quota.objects.create(project=project, kind="money", period="day", limit=7)
    Quota.objects.create(project=other, kind="money", period="month", limit=9, user=ana)
    assert quotas.month_budgets_micro([project.pk, other.pk]) == {project.pk: 100}
    assert quotas.month_budgets_micro([other.pk]) == {}
    assert quotas.month_budget_micro() is None
    Quota.objects.create(project=other, kind="money", period="month", limit=30)
    assert quotas.month_budget_micro() == 130
    Project.objects.filter(pk=other.pk).update(archived_at=START)
    assert quotas.month_budget_micro() == 100
