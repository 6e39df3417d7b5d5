"""Expected starts on the command line."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from evenkeel import schemas
from evenkeel.cli.starts import start_text

NOW = datetime(2026, 11, 21, 14, 32, tzinfo=UTC)


def said(*minutes: float, outcomes: int = 412) -> schemas.ExpectedStart:
    low, middle, high = ((NOW + timedelta(minutes=after)).isoformat() for after in minutes)
    return {
        "p10_at": low, "p50_at": middle, "p90_at": high, "as_of": NOW.isoformat(), "basis": "simulated",
        "run_time": "steps", "outcomes": outcomes, "reason": None,
    }  # fmt: skip


def test_it_says_the_range_and_the_middle() -> None:
    assert start_text(said(10, 20, 40), now=NOW) == "in 10m 00s to 40m 00s, likely 20m 00s"


def test_it_says_it_once_where_all_is_known() -> None:
    assert start_text(said(20, 20, 20), now=NOW) == "in 20m 00s"


def test_at_length_it_says_when_that_was_worked_out_and_on_what() -> None:
    text = start_text(said(10, 20, 40), long=True, now=NOW)
    assert "as of 2026-11-21" in text
    assert text.endswith("simulated, calibrated on 412 starts)")
    assert start_text(said(1, 2, 3, outcomes=0), long=True, now=NOW).endswith("not calibrated yet)")


def test_it_says_why_nothing_can_be_said() -> None:
    start = said(1, 2, 3) | {"p10_at": None, "p50_at": None, "p90_at": None}
    held: schemas.ExpectedStart = {**start, "reason": {"code": "held", "text": "It is held."}}
    assert start_text(held) == "(Held)"
    assert start_text(held, long=True) == "It is held."


def test_of_a_job_that_does_not_wait_it_says_nothing() -> None:
    assert start_text(None) == ""
