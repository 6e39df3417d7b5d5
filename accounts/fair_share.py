"""Decayed GPU usage by project, user and type, for fair share: the ledger with a half-life.

Stored as sums up to a horizon, which advances now and then; later entries are added when it is read. The horizon is an
hour behind, and no entry is that late: it is written in the transaction that ends its occupancy.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.db import connection, transaction
from django.db.models import F
from django.utils import timezone

from accounts.models import FairShareClock, FairShareUsage
from accounts.pricing import midnight

Reset = FairShareClock.Reset
_BEHIND = timedelta(hours=1)
_MOVED_EVERY = timedelta(hours=1)
#: The rest after this many half-lives counts as nothing.
_FORGOTTEN_HALF_LIVES = 60
_NOTHING_GPU_S = 1e-6
_START = datetime(1970, 1, 1, tzinfo=UTC)

#: An entry's GPU-seconds decayed to %(at)s: the integral of 2^(-(at - t)/half-life) over its time. Exponents are
#: bounded: an underflow is an error in PostgreSQL.
_DECAYED = """quantity / 100.0 / %(rate)s
    * (exp(greatest(-600, -%(rate)s * extract(epoch FROM %(at)s - to_at)))
       - exp(greatest(-600, -%(rate)s * extract(epoch FROM %(at)s - greatest(from_at, %(reset)s)))))"""
_WHOLE = "quantity / 100.0 * extract(epoch FROM to_at - greatest(from_at, %(reset)s))"
_ENTERED = """
    SELECT project_id, coalesce(user_id, 0) AS user_id, accelerator_type, sum({seconds})::float8 AS gpu_s
    FROM accounts_ledgerentry
    WHERE resource = 'gpu' AND to_at > %(since)s AND to_at <= %(until)s AND to_at > %(reset)s
    GROUP BY 1, 2, 3"""
_ADD = """
    INSERT INTO accounts_fairshareusage (project_id, user_id, accelerator_type, gpu_s) {entered}
    ON CONFLICT (project_id, user_id, accelerator_type)
    DO UPDATE SET gpu_s = accounts_fairshareusage.gpu_s + excluded.gpu_s"""
_ASK = """
    SELECT project_id, user_id, accelerator_type, sum(gpu_s)
    FROM (SELECT project_id, user_id, accelerator_type, gpu_s FROM accounts_fairshareusage WHERE %(at)s > %(reset)s
          UNION ALL {entered}) AS parts
    GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"""


@dataclass(frozen=True, slots=True)
class Decayed:
    """GPU-seconds decayed to `at`: (project, user) -> type -> seconds; user 0 stands for no user."""

    at: datetime
    gpu_s: dict[tuple[int, int], dict[str, float]]


def last_reset(reset: str, now: datetime) -> datetime:
    """The last reset of all usage: a midnight in the site's time zone."""
    if reset == Reset.NEVER:
        return _START
    zone = timezone.get_default_timezone()
    day = now.astimezone(zone).date()
    match reset:
        case Reset.WEEKLY:
            day -= timedelta(days=day.weekday())
        case Reset.MONTHLY:
            day = day.replace(day=1)
        case Reset.QUARTERLY:
            day = day.replace(month=(day.month - 1) // 3 * 3 + 1, day=1)
        case Reset.YEARLY:
            day = day.replace(month=1, day=1)
    return midnight(day, zone)


def next_reset(now: datetime) -> float:
    """The next reset of all usage (POSIX seconds); infinite: never."""
    reset = FairShareClock.objects.values_list("reset", flat=True).first() or Reset.NEVER
    if reset == Reset.NEVER:
        return math.inf
    last = last_reset(reset, now)
    days = {Reset.DAILY: 1.5, Reset.WEEKLY: 8, Reset.MONTHLY: 32, Reset.QUARTERLY: 95, Reset.YEARLY: 367}[Reset(reset)]
    # the first moment of the next period: its own last reset, computed from a time within it
    return last_reset(reset, last + timedelta(days=days)).timestamp()


@transaction.atomic
def configure(*, half_life_s: float | None, reset: str, now: datetime) -> FairShareClock:
    """Use this half-life from now on, also for past usage. Does nothing if it is unchanged."""
    values = {"half_life_s": half_life_s, "reset": reset, "horizon": now - _BEHIND}
    # a concurrent caller waits here until the sums exist
    _, made = FairShareClock.objects.get_or_create(pk=1, defaults=values)
    clock = FairShareClock.objects.select_for_update().get(pk=1)
    if not made and (clock.half_life_s, clock.reset) == (half_life_s, reset):
        return clock
    clock.half_life_s, clock.reset, clock.horizon = half_life_s, reset, now - _BEHIND
    clock.save()
    FairShareUsage.objects.all().delete()
    first = clock.horizon - timedelta(seconds=_FORGOTTEN_HALF_LIVES * half_life_s) if half_life_s else _START
    _execute(_ADD, clock, at=clock.horizon, since=max(first, _START), until=clock.horizon, now=clock.horizon)
    return clock


@transaction.atomic
def decayed_usage(now: datetime) -> Decayed:
    """Usage of ended occupancy; present occupancy is not in the ledger yet. Usually two queries."""
    clock = FairShareClock.objects.select_for_update(of=("self",), no_key=True).filter(pk=1).first()
    if clock is None:
        clock = configure(half_life_s=7 * 86_400.0, reset=Reset.NEVER, now=now)
    if clock.horizon < now - _BEHIND - _MOVED_EVERY:
        _move_on(clock, now)
    found: dict[tuple[int, int], dict[str, float]] = defaultdict(dict)
    rows = _execute(_ASK, clock, at=clock.horizon, since=clock.horizon, until=now + timedelta(days=1), now=now)
    for project, user, kind, gpu_s in rows:
        found[project, user][kind] = gpu_s
    return Decayed(clock.horizon, dict(found))


def _move_on(clock: FairShareClock, now: datetime) -> None:
    """Advance the sums to a new horizon; the caller has locked the clock."""
    before, horizon = clock.horizon, now - _BEHIND
    if last_reset(clock.reset, horizon) > before:
        FairShareUsage.objects.all().delete()
    elif clock.half_life_s:
        left = 0.5 ** ((horizon - before).total_seconds() / clock.half_life_s)
        FairShareUsage.objects.update(gpu_s=F("gpu_s") * left)
    _execute(_ADD, clock, at=horizon, since=before, until=horizon, now=horizon)
    FairShareUsage.objects.filter(gpu_s__lt=_NOTHING_GPU_S).delete()
    clock.horizon = horizon
    clock.save(update_fields=["horizon"])


def _execute(
    statement: str, clock: FairShareClock, *, at: datetime, since: datetime, until: datetime, now: datetime
) -> list[tuple[int, int, str, float]]:
    rate = math.log(2.0) / clock.half_life_s if clock.half_life_s else 0.0
    entered = _ENTERED.format(seconds=_DECAYED if rate else _WHOLE)
    values: dict[str, datetime | float] = {
        "at": at,
        "since": since,
        "until": until,
        "reset": last_reset(clock.reset, now),
        "rate": rate,
    }
    with connection.cursor() as cursor:
        cursor.execute(statement.format(entered=entered), values)
        return list(cursor.fetchall()) if cursor.description else []
