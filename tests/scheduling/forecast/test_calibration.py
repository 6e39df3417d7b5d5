"""Calibrated intervals cover what they promise, and what still waits counts for what is known of it."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduling.forecast.calibration import LEAST_SAMPLES, LONGEST_S, Calibration, Sample, calibrate
from scheduling.forecast.forecast import Start
from scheduling.forecast.survival import Survival


def sample(rng: random.Random, bias: float, noise: float) -> Sample:
    """A forecast with an interval that is far too narrow, and a wait that is off by a factor."""
    middle = rng.uniform(100.0, 10_000.0)
    return Sample(Start(0.95 * middle, middle, 1.05 * middle), middle * math.exp(rng.gauss(bias, noise)))


def coverage(tests: list[Sample], fitted: Calibration) -> float:
    starts = [(fitted.apply(one.said), one.waited_s) for one in tests]
    return sum(start.p10_s <= waited <= start.p90_s for start, waited in starts) / len(starts)


@pytest.mark.parametrize(("bias", "noise"), [(0.0, 0.1), (0.0, 1.0), (0.7, 0.5), (-0.4, 1.5)])
def test_four_of_five_fall_within_the_interval_whatever_the_futures_said(bias: float, noise: float) -> None:
    rng = random.Random(f"{bias} {noise}")
    shares = []
    for _ in range(30):
        fitted = calibrate([sample(rng, bias, noise) for _ in range(200)])
        tests = [sample(rng, bias, noise) for _ in range(200)]
        shares.append(coverage(tests, fitted))
    assert sum(shares) / len(shares) == pytest.approx(0.80, abs=0.02)


def test_a_past_in_which_all_went_as_foreseen_narrows_nothing() -> None:
    """A queue that went as foreseen for days may yet turn: the next futures lie as far apart as before."""
    exact = [Sample(Start(1_000.0, 2_000.0, 4_000.0), 3_000.0) for _ in range(100)]
    said = calibrate(exact).apply(Start(1_000.0, 2_000.0, 4_000.0))
    assert said.p50_s == pytest.approx(3_000.0, rel=0.01)
    assert said.p10_s == pytest.approx(1_500.0, rel=0.03)
    assert said.p90_s == pytest.approx(6_000.0, rel=0.03)


def test_half_start_before_the_middle() -> None:
    rng = random.Random(1)
    fitted = calibrate([sample(rng, 0.7, 0.5) for _ in range(2_000)])
    tests = [sample(rng, 0.7, 0.5) for _ in range(2_000)]
    early = sum(one.waited_s <= fitted.apply(one.said).p50_s for one in tests)
    assert early / len(tests) == pytest.approx(0.5, abs=0.04)


def test_those_that_still_wait_do_not_make_waits_look_short() -> None:
    """Of long waits only the beginning is seen: left out, the interval would miss them."""
    rng = random.Random(2)
    whole = [sample(rng, 0.0, 1.0) for _ in range(4_000)]
    seen = []
    for one in whole[:2_000]:
        looked_s = one.said.p50_s * math.exp(rng.gauss(0.5, 1.0))
        over = one.waited_s <= looked_s
        seen.append(Sample(one.said, min(one.waited_s, looked_s), over))
    tests = whole[2_000:]
    assert coverage(tests, calibrate(seen)) == pytest.approx(0.80, abs=0.04)
    assert coverage(tests, calibrate([one for one in seen if one.over])) < 0.75


def test_with_few_outcomes_what_was_said_stands() -> None:
    rng = random.Random(3)
    fitted = calibrate([sample(rng, 1.0, 1.0) for _ in range(LEAST_SAMPLES - 1)])
    said = Start(10.0, 20.0, 40.0)
    assert not fitted.fitted
    assert fitted.apply(said) == said


@given(
    st.lists(st.floats(-3.0, 3.0), min_size=LEAST_SAMPLES, max_size=80),
    st.lists(st.floats(0.0, 1e6), min_size=3, max_size=3),
)
def test_ends_stay_in_order_and_after_now(offs: list[float], said: list[float]) -> None:
    fitted = calibrate([Sample(Start(80.0, 100.0, 120.0), 100.0 * math.exp(off)) for off in offs])
    p10, p50, p90 = sorted(said)
    start = fitted.apply(Start(p10, p50, p90))
    assert 0.0 <= start.p10_s <= start.p50_s <= start.p90_s < math.inf


def test_survival_is_the_plain_share_where_everything_is_over() -> None:
    known = Survival.of([4.0, 1.0, 3.0, 2.0], [True] * 4)
    assert [known.quantile(share) for share in (0.25, 0.5, 0.75, 1.0)] == [1.0, 2.0, 3.0, 4.0]
    assert known.draw_above(2.0, 0.5) == 3.0
    assert known.draw_above(2.0, 0.51) == 4.0


def test_survival_beyond_what_was_seen_is_infinite() -> None:
    known = Survival.of([1.0, 2.0, 3.0], [True, True, False])
    assert known.quantile(0.5) == 2.0
    assert known.quantile(0.9) == math.inf


def test_no_interval_ends_after_calendars_do() -> None:
    wide = Calibration(low=-1.0, middle=0.0, high=20.0, outcomes=1_000)
    said = wide.apply(Start(60.0, 3_600.0, 86_400.0))
    assert said.p50_s == pytest.approx(3_600)
    assert said.p90_s == LONGEST_S
