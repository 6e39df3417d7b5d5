"""Conversions between times of the database, the API and the scheduler."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from scheduling.executors.base import Fact
from scheduling.forecast.calibration import LONGEST_S


def iso(at: datetime | None) -> str | None:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z") if at else None


def moment(at: float | None, now: datetime) -> datetime | None:
    """None if it is too far ahead for a date."""
    if at is None or at - now.timestamp() > LONGEST_S:
        return None
    return datetime.fromtimestamp(at, tz=UTC)


def from_posix(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, tz=UTC)


def engines_time(since: datetime, fact: Fact) -> tuple[datetime, datetime]:
    """The billed time of a launch with occupancy since `since`: as long as the engine ran it, if it reports that,
    within the observed time. The engine's clock may differ from ours, so its times alone do not suffice."""
    seen_at = from_posix(fact.at)
    if fact.began_at is None or fact.ended_at is None:
        return since, seen_at
    ran = timedelta(seconds=max(0.0, fact.ended_at - fact.began_at))
    end = min(seen_at, max(from_posix(fact.ended_at), since + ran))
    return max(since, end - ran), end
