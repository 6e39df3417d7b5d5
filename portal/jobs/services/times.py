"""Moments as runners and executors say them."""

from __future__ import annotations

from datetime import UTC, datetime


def from_posix(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, tz=UTC)
