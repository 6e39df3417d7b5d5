"""Decayed usage against the integral over every ledger entry."""

from __future__ import annotations

import uuid
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from accounts import fair_share, ledger
from accounts.models import FairShareClock, FairShareUsage, LedgerEntry, Project, User
from scheduling.priority.decay import held

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 18, 15, 30, tzinfo=UTC)
DAY_S = 86_400.0


@pytest.fixture
def projects() -> list[Project]:
    return [Project.objects.create(key=key, name=key) for key in ("a", "b")]


@pytest.fixture
def person() -> User:
    return User.objects.create_user("a@example.org")


def enter(project: Project, user: User | None, from_at: datetime, hours: float, **more: Any) -> None:
    hold = LedgerEntry.objects.count() + 1
    values = {"accelerator_type": "v100", **more}
    until = from_at + timedelta(hours=hours)
    one = ledger.Held(
        project.pk, user.pk if user else None, uuid.uuid4(), uuid.uuid4(), hold, from_at=from_at, to_at=until, **values
    )
    ledger.record_holds([one])


def expected(at: datetime, half_life_s: float | None, since: datetime | None = None) -> dict[Any, float]:
    sums: dict[Any, float] = defaultdict(float)
    for entry in LedgerEntry.objects.filter(resource="gpu"):
        start = max(entry.from_at, since) if since else entry.from_at
        seconds = held(start.timestamp(), entry.to_at.timestamp(), at.timestamp(), half_life_s)
        if seconds:
            sums[entry.project_id, entry.user_id or 0, entry.accelerator_type] += seconds * entry.quantity / 100
    return sums


def found(now: datetime) -> tuple[datetime, dict[Any, float]]:
    usage = fair_share.decayed_usage(now)
    flat = {(*key, kind): gpu_s for key, by_type in usage.gpu_s.items() for kind, gpu_s in by_type.items()}
    return usage.at, flat


def test_what_was_entered_is_forgotten_with_the_half_life(projects: list[Project], person: User) -> None:
    enter(projects[0], person, NOW - timedelta(days=14), 10)
    enter(projects[0], person, NOW - timedelta(hours=3), 2.5)
    enter(projects[1], None, NOW - timedelta(days=1), 4, gpu_hundredths=50)
    enter(projects[1], person, NOW - timedelta(minutes=20), 0.2, accelerator_type="k80")
    at, sums = found(NOW)
    assert sums == pytest.approx(expected(at, 7 * DAY_S))
    assert len(sums) == 3


def test_the_horizon_moves_and_the_sums_stay_right(projects: list[Project], person: User) -> None:
    fair_share.configure(half_life_s=DAY_S, reset="never", now=NOW)
    for step in range(8):
        now = NOW + timedelta(hours=5 * step)
        enter(projects[step % 2], person, now - timedelta(hours=4.9), 4.5)
        at, sums = found(now)
        assert now - at <= timedelta(hours=2)
        assert sums == pytest.approx(expected(at, DAY_S))
    assert FairShareUsage.objects.exists()


def test_another_half_life_holds_for_the_past_too(projects: list[Project], person: User) -> None:
    enter(projects[0], person, NOW - timedelta(days=30), 100)
    for half_life_s in (3_600.0, 30 * DAY_S, None, 7 * DAY_S):
        fair_share.configure(half_life_s=half_life_s, reset="never", now=NOW)
        at, sums = found(NOW)
        # Of an hour's half-life nothing is left after a month.
        assert sums == pytest.approx({key: value for key, value in expected(at, half_life_s).items() if value > 1e-6})


@pytest.mark.parametrize(
    ("reset", "since"),
    [
        ("daily", datetime(2026, 11, 18, tzinfo=UTC)),
        ("weekly", datetime(2026, 11, 16, tzinfo=UTC)),
        ("monthly", datetime(2026, 11, 1, tzinfo=UTC)),
        ("quarterly", datetime(2026, 10, 1, tzinfo=UTC)),
        ("yearly", datetime(2026, 1, 1, tzinfo=UTC)),
    ],
)
def test_all_is_forgotten_when_a_period_begins(
    projects: list[Project], person: User, reset: Any, since: datetime
) -> None:
    enter(projects[0], person, since - timedelta(hours=30), 10)
    enter(projects[0], person, since - timedelta(hours=1), 3)
    fair_share.configure(half_life_s=None, reset=reset, now=NOW)
    assert fair_share.last_reset(reset, NOW) == since
    assert found(NOW)[1] == {(projects[0].pk, person.pk, "v100"): 7_200}


def test_a_period_that_begins_while_the_portal_runs(projects: list[Project], person: User) -> None:
    fair_share.configure(half_life_s=DAY_S, reset="daily", now=NOW)
    midnight = datetime(2026, 11, 19, tzinfo=UTC)
    enter(projects[0], person, NOW - timedelta(hours=2), 1.5)
    assert found(NOW + timedelta(hours=4))[1]
    enter(projects[0], person, midnight - timedelta(hours=1), 1.5)
    for hours in (0.6, 1.5, 3, 6):
        at, sums = found(midnight + timedelta(hours=hours))
        assert sums == pytest.approx(expected(at, DAY_S, midnight))


def test_the_same_settings_again_change_nothing(projects: list[Project], person: User) -> None:
    enter(projects[0], person, NOW - timedelta(days=3), 10)
    fair_share.configure(half_life_s=DAY_S, reset="never", now=NOW)
    before = list(FairShareUsage.objects.values())
    FairShareUsage.objects.update(gpu_s=7.0)
    fair_share.configure(half_life_s=DAY_S, reset="never", now=NOW)
    assert [row["gpu_s"] for row in FairShareUsage.objects.values()] == [7.0]
    fair_share.configure(half_life_s=2 * DAY_S, reset="never", now=NOW)
    assert [row["gpu_s"] for row in FairShareUsage.objects.values()] != [row["gpu_s"] for row in before] != [7.0]


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    entries=st.lists(st.tuples(st.floats(0, 400), st.floats(0.01, 30), st.integers(0, 1)), max_size=8),
    half_life_h=st.floats(1, 1_000),
    looks=st.lists(st.floats(0.1, 30), min_size=1, max_size=4),
)
def test_sums_are_the_integral_over_the_ledger(
    projects: list[Project], person: User, entries: list[Any], half_life_h: float, looks: list[float]
) -> None:
    LedgerEntry.objects.all().delete()
    FairShareClock.objects.all().delete()
    FairShareUsage.objects.all().delete()
    for ago, hours, which in entries:
        enter(projects[which], person, NOW - timedelta(hours=ago + hours), hours)
    fair_share.configure(half_life_s=half_life_h * 3_600, reset="never", now=NOW)
    now = NOW
    for wait in looks:
        now += timedelta(hours=wait)
        at, sums = found(now)
        wanted = expected(at, half_life_h * 3_600)
        assert sums == pytest.approx({key: wanted[key] for key in sums}, rel=1e-6, abs=1e-3)
        assert all(value < 1e-3 for key, value in wanted.items() if key not in sums)


@pytest.mark.django_db(transaction=True)
def test_whoever_asks_first_at_the_same_moment_counts_nothing_twice() -> None:
    project = Project.objects.create(key="a", name="a")
    enter(project, None, NOW - timedelta(days=2), 10)

    def ask(_: int) -> dict[Any, float]:
        try:
            return found(NOW)[1]
        finally:
            connection.close()

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, range(8)))
    at = FairShareClock.objects.get().horizon
    assert all(answer == pytest.approx(expected(at, 7 * DAY_S)) for answer in answers)
