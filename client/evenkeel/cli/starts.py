"""Expected starts in words."""

from __future__ import annotations

from datetime import UTC, datetime

from evenkeel import schemas
from evenkeel.cli.output import clean, code_text, moment, span_text


def start_text(start: schemas.ExpectedStart | None, *, long: bool = False, now: datetime | None = None) -> str:
    """`in 10m to 40m, likely 20m`; `long` adds the time and what it rests on, or why nothing can be said."""
    if start is None:
        return ""
    if start["reason"] is not None:
        return clean(start["reason"]["text"]) if long else f"({code_text(start['reason']['code'])})"
    now = now or datetime.now(UTC)
    low, middle, high = (_ahead(start[name], now) for name in ("p10_at", "p50_at", "p90_at"))
    text = f"in {low} to {high}, likely {middle}" if low != high else f"in {middle}"
    if not long:
        return text
    parts = [f"{moment(start['p50_at'])}", f"as of {moment(start['as_of'])}", clean(start["basis"])]
    parts.append(f"calibrated on {start['outcomes']} starts" if start["outcomes"] else "not calibrated yet")
    return f"{text} ({', '.join(parts)})"


def _ahead(at: str | None, now: datetime) -> str:
    assert at is not None, "an expected start without a reason has all three times"
    return span_text(max(0.0, (datetime.fromisoformat(at) - now).total_seconds()))
