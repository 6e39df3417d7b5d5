"""POSIX seconds of plans and forecasts as times that a calendar has."""

from __future__ import annotations

from datetime import UTC, datetime

from scheduling.forecast.calibration import LONGEST_S


def moment(at: float | None, now: datetime) -> datetime | None:
    """None where it is so far ahead that it is as good as never: no date can hold every number."""
    if at is None or at - now.timestamp() > LONGEST_S:
        return None
    return datetime.fromtimestamp(at, tz=UTC)
