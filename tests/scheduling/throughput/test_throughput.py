"""Curves: envelopes, measuring, merging."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduling.domain import Curve
from scheduling.errors import InvalidInput
from scheduling.throughput.curves import (
    Number,
    Sample,
    amdahl,
    catalogue,
    effective,
    envelope,
    fit_amdahl,
    make_curve,
    measure,
    merge,
    numbers_of,
    scale,
    trial_curve,
)


@given(st.dictionaries(st.integers(1, 20), st.floats(0, 1e6), max_size=8))
def test_the_envelope_never_falls_and_reaches_every_point(points: dict[int, float]) -> None:
    values = envelope(points)
    assert list(values) == sorted(values)
    assert all(values[count - 1] >= value for count, value in points.items())
    assert len(values) == max(points, default=0)


def test_beyond_the_largest_measured_count_it_is_constant() -> None:
    curve = make_curve({2: 3.0, 4: 2.5})
    assert [curve.at(n) for n in range(6)] == [0.0, 0.0, 3.0, 3.0, 3.0, 3.0]
    assert Curve(()).at(3) == 0.0


def test_negative_numbers_are_refused() -> None:
    with pytest.raises(InvalidInput):
        make_curve({1: -1.0})


def test_spanning_nodes_is_used_only_where_it_helps() -> None:
    curve = make_curve({1: 1.0, 2: 2.0, 3: 3.0, 4: 4.0}, spread_factor=0.6)
    assert effective(curve, 4, 2) == pytest.approx((0.0, 1.0, 2.0, 2.0, 2.4))


def test_a_speed_up_multiplies_the_curve() -> None:
    assert scale(make_curve({1: 2.0}), 10).at(1) == 20.0


def sample(steps: int, since_launch: int = 100, count: int = 2, at: float = 0.0) -> Sample:
    return Sample("m", 32, "h200", count, steps, 10.0, since_launch, at)


def test_a_measurement_is_the_median_after_warm_up() -> None:
    found = measure([sample(5, since_launch=3), sample(90), sample(100), sample(20, at=9.0), sample(110), sample(105)])
    assert found == {("m", 32, "h200", 2): Number(10.0, "measured", 9.0, 5)}


def test_few_reports_are_no_measurement() -> None:
    assert measure([sample(90), sample(100)]) == {}


def test_only_the_latest_reports_count() -> None:
    old, new = [sample(10, at=1.0)] * 5, [sample(50, at=2.0)] * 5
    assert measure(old + new, window=5)["m", 32, "h200", 2].steps_per_s == 5.0


def test_amdahl_is_recovered_from_its_points() -> None:
    values = amdahl(0.1, 0.5, 6)
    assert fit_amdahl(dict(enumerate(values, 1))) == pytest.approx((0.1, 0.5))
    assert fit_amdahl({1: 2.0, 2: 1.0}) == pytest.approx((0.75, 0.0))  # slower on more: nothing scales
    serial, parallel = fit_amdahl({2: 1 / 0.55})
    assert parallel / (serial + parallel) == pytest.approx(0.9)


def test_a_measured_number_beats_all_others_and_bends_the_rest() -> None:
    profile = merge(
        [numbers_of(make_curve({1: 10.0, 2: 20.0, 3: 30.0})), {2: Number(10.0, "measured", 5.0, 30)}], limit=8
    )
    assert profile.curve.source == "measured"
    assert profile.curve.steps_per_s == (5.0, 10.0, 15.0)
    assert [number.source for number in profile.numbers.values()] == ["estimated", "measured", "estimated"]
    assert profile.numbers[2].age_s(65.0) == 60.0


def test_user_numbers_beat_the_catalogue() -> None:
    profile = merge([{1: Number(3.0, "catalogue")}, {1: Number(2.0, "user")}], limit=4)
    assert (profile.curve.steps_per_s, profile.curve.source) == ((2.0,), "user")


def test_one_measurement_alone_promises_a_shape() -> None:
    profile = merge([{1: Number(10.0, "measured", 0.0, 3)}], limit=4)
    assert profile.curve.steps_per_s == pytest.approx((10.0, 18.18, 25.0, 30.77), rel=1e-3)
    assert profile.numbers[4].source == "estimated"


def test_an_unknown_job_has_a_trial_curve() -> None:
    assert trial_curve(3) == Curve((0.0, 0.0, 1.0), "trial")
    assert merge([], limit=4).curve == Curve((), "trial")


def test_the_catalogue_knows_its_models_and_says_what_is_estimated() -> None:
    known = catalogue()
    assert set(known) == {"digits_cnn", "digits_mlp", "tiny_lm", "resnet50", "inception_v3"}
    for curves in known.values():
        assert set(curves) == {"titan_xp", "h200", "l40s", "v100", "cpu"}
        assert all(list(curve.steps_per_s) == sorted(curve.steps_per_s) for curve in curves.values())
    assert known["resnet50"]["titan_xp"].source == "catalogue"
    assert known["resnet50"]["h200"].source == "estimated"
