"""What held between events in simulated time: GPU seconds, live jobs, and how evenly jobs train."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduling.simulator.meter import Meter

# What is counted between events ----------------------------------------------------------------------------


def test_counts_hold_from_one_moment_to_the_next() -> None:
    meter = Meter(5.0)
    for now in (5.0, 4.0):
        meter.advance(now)
    assert (meter.at, dict(meter.seconds_at), list(meter.times)) == (5.0, {}, [])
    assert meter.mean_variance == meter.gpu_seconds == 0.0
    meter.live = 2
    meter.advance(15.0)
    assert meter.mean_variance == 0.0
    meter.live = 3
    meter.train(2_000, 0.5, 1)
    meter.advance(20.0)
    meter.advance(25.0)
    meter.train(500, 1.0, 1)
    meter.advance(27.0)
    assert dict(meter.seconds_at) == {0: 10.0, 2_000: 10.0, 2_500: 2.0}
    assert (list(meter.times), list(meter.levels)) == ([5.0, 15.0, 25.0], [0, 2_000, 2_500])
    assert (meter.training, meter.milli, meter.at) == (2, 2_500, 27.0)
    assert meter.gpu_seconds == 2.0 * 10.0 + 2.5 * 2.0
    assert meter.mean_variance == pytest.approx(0.0625 * 2.0 / 12.0)


@pytest.mark.parametrize(
    ("start", "end", "mean"),
    [
        (0.0, 10.0, 2.0),
        (0.0, 20.0, 4.0),
        (5.0, 15.0, 4.0),
        (12.0, 13.0, 6.0),
        (9.0, 11.0, 4.0),
        (10.0, 10.0, 0.0),
        (12.0, 11.0, 0.0),
        (20.0, 30.0, 0.0),
        (10.0, 30.0, 3.0),
        (-10.0, 10.0, 1.0),
    ],
)
def test_the_mean_number_of_live_jobs_between_two_times(start: float, end: float, mean: float) -> None:
    meter = Meter(0.0)
    meter.live = 2
    meter.advance(10.0)
    meter.live = 6
    meter.advance(20.0)
    assert meter.mean_live(start, end) == pytest.approx(mean)


def test_the_variance_of_equals_is_never_below_nothing() -> None:
    meter = Meter(0.0)
    for _ in range(6):
        meter.train(1_000, 0.03, 1)  # of whose squares rounding leaves less
    assert meter.variance == 0.0


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=8))
def test_the_variance_is_that_of_those_that_train(shares: list[float]) -> None:
    meter = Meter(0.0)
    for share in shares:
        meter.train(1_000, share, 1)
    mean = sum(shares) / len(shares)
    assert meter.variance == pytest.approx(sum((share - mean) ** 2 for share in shares) / len(shares), abs=1e-12)
    assert meter.variance >= 0.0
    meter.advance(10.0)
    for share in shares:
        meter.train(1_000, share, -1)
    meter.advance(90.0)
    assert meter.mean_variance == pytest.approx(sum((share - mean) ** 2 for share in shares) / len(shares), abs=1e-12)
    assert (meter._shares, meter._squares, meter.milli) == (0.0, 0.0, 0)
