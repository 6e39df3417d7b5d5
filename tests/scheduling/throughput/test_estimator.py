"""Estimates: what is known stays, nothing is negative, what does not fit stays out, and errors are as stated."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduling.domain import Curve
from scheduling.throughput.colocation import kept, nearest_gang, pairs_of, votes_of
from scheduling.throughput.curves import catalogue
from scheduling.throughput.estimates import estimate
from scheduling.throughput.estimator import COVERAGE, LOGARITHMS, RETAINED, Estimator, Floats, fill
from scheduling.throughput.published import published_curves, published_table, slug
from scheduling.throughput.reference_tables import family, logarithms, retained
from tests.builders import make_job

KINDS = published_table().kinds
RESNET, LM, A3C = "ResNet-50 (batch size 64)", "LM (batch size 80)", "A3C"


def masked(table: Floats, share: float, seed: int) -> Floats:
    return np.where(np.random.default_rng(seed).random(table.shape) < share, np.nan, table)


tables = st.tuples(st.integers(2, 8), st.integers(2, 8), st.integers(0, 2**31), st.floats(0.0, 0.9))


@settings(max_examples=60, deadline=None)
@given(tables)
def test_completion_keeps_what_is_known_and_stays_within_bounds(drawn: tuple[int, int, int, float]) -> None:
    rows, columns, seed, share = drawn
    whole = np.round(np.random.default_rng(seed).random((rows, columns)), 1)
    table = masked(whole, share, seed + 1)
    filled, known = fill(table, RETAINED), ~np.isnan(table)
    assert np.array_equal(filled[known], table[known])
    assert not np.isnan(filled).any()
    assert ((filled >= 0) & (filled <= 1)).all()
    assert np.array_equal(filled, fill(table, RETAINED))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, len(KINDS) - 1), st.floats(0.0, 1.0), st.integers(0, 2**31))
def test_a_completed_row_keeps_its_fingerprint_and_is_the_same_every_time(kind: int, share: float, seed: int) -> None:
    table = retained(1)
    row = masked(table[kind], share, seed)
    one, two = (Estimator(table, RETAINED).complete(row) for _ in range(2))
    known = ~np.isnan(row)
    assert np.array_equal(one.values[known], row[known])
    assert (one.error[known] == 0).all()
    assert (one.error[~known] > 0).all()
    assert (one.values >= 0).all()
    assert np.array_equal(one.values, two.values)
    assert np.array_equal(one.error, two.error)
    assert one.weights.sum() == pytest.approx(1.0)


def test_a_kind_of_the_table_is_recognised_by_a_fifth_of_its_row() -> None:
    table = retained(1)
    estimator = Estimator(table, RETAINED)
    for number, row in enumerate(table):
        found = estimator.complete(masked(row, 0.8, number))
        assert np.abs(table[found.closest] - row).mean() < 0.01
        assert np.abs(found.values - row).mean() <= 0.0255


def test_error_bars_cover_what_they_say_on_models_the_table_does_not_show() -> None:
    table, families = retained(1), [family(kind) for kind in KINDS]
    inside = []
    for number, row in enumerate(table):
        others = [n for n, name in enumerate(families) if name != families[number]]
        fingerprint = masked(row, 0.8, number)
        found = Estimator(table[others], RETAINED, [families[n] for n in others]).complete(fingerprint)
        inside.append((np.abs(found.values - row) <= found.error)[np.isnan(fingerprint)])
    assert np.concatenate(inside).mean() >= COVERAGE - 0.05


@pytest.mark.parametrize(("share", "most_alone", "most_pairs"), [(0.1, 0.15, 0.08), (0.3, 0.2, 0.085), (0.5, 0.3, 0.1)])
def test_hidden_entries_of_the_table_are_found_again(share: float, most_alone: float, most_pairs: float) -> None:
    for table, method, most in ((logarithms(), LOGARITHMS, most_alone), (retained(1), RETAINED, most_pairs)):
        hidden = masked(table, share, 7)
        off = np.abs(fill(hidden, method) - table)[np.isnan(hidden) & ~np.isnan(table)]
        assert off.mean() < most


# The published table ---------------------------------------------------------------------------------


def test_the_table_comes_with_its_licence_and_has_what_was_published() -> None:
    table = published_table()
    assert (len(table.kinds), table.types, table.gangs) == (26, ("k80", "p100", "v100"), (1, 2, 4, 8))
    assert table.licence == "MIT"
    assert table.unit.startswith("mini-batches per second")
    first = table.kinds.index("ResNet-18 (batch size 16)")
    assert table.alone["v100", 1][first] == pytest.approx(32.3534)
    other = table.kinds.index("ResNet-18 (batch size 256)")
    assert table.colocated["v100", 1][first, other] < table.alone["v100", 1][first]
    assert (table.alone["k80", 2] == 0).any()  # does not fit


def test_gangs_apart_have_numbers_of_their_own() -> None:
    curve = published_curves()["ResNet-18 (batch size 16)"]["v100"]
    assert curve.spread_at(1) == 1.0
    assert curve.at(2) * curve.spread_at(2) == pytest.approx(35.336, rel=1e-3)
    assert curve.spread_at(8) < curve.spread_at(4) < 1.0


# Alone -------------------------------------------------------------------------------------------------


def test_neither_a_known_type_nor_a_wholly_unknown_one_is_estimated() -> None:
    found = estimate({"v100": {1: 10.0}}, {"v100": 4, "k80": 4, "abacus": 4})
    assert set(found) == {"k80"}
    assert sorted(found["k80"]) == [1, 2, 3, 4]
    assert {number.source for number in found["k80"].values()} == {"estimated"}
    assert all(number.relative_error and number.relative_error > 0 for number in found["k80"].values())


def test_estimates_do_not_depend_on_the_unit() -> None:
    one = estimate({"v100": {1: 10.0, 2: 18.0}}, {"k80": 4})["k80"]
    ten = estimate({"v100": {1: 100.0, 2: 180.0}}, {"k80": 4})["k80"]
    assert [n.steps_per_s for n in ten.values()] == pytest.approx([10 * n.steps_per_s for n in one.values()])


def test_nothing_known_is_nothing_estimated() -> None:
    assert estimate({}, {"v100": 4}) == {}
    assert estimate({"abacus": {1: 3.0}}, {"v100": 4}) == {}


def test_a_measurement_on_an_odd_count_is_used_too() -> None:
    assert estimate({"v100": {3: 25.0}}, {"k80": 1})["k80"][1].steps_per_s > 0


@pytest.mark.parametrize("kind", [RESNET, LM, A3C])
def test_a_published_kind_is_estimated_as_it_was_measured(kind: str) -> None:
    curves = published_curves()[kind]
    known = {name: {1: curves[name].at(1)} for name in ("k80", "v100")}
    found = estimate(known, {"p100": 1})["p100"][1]
    assert found.steps_per_s == pytest.approx(curves["p100"].at(1), rel=0.3)


# Together ----------------------------------------------------------------------------------------------


def two(one: str, other: str) -> tuple[dict[str, tuple[float, float]], str]:
    curves = {kind: Curve((10.0,) * 8) for kind in ("k80", "v100", "titan_xp")}
    jobs = [make_job(workload=name, gpus=1, curves=curves) for name in (one, other)]
    ((key, found),) = [(k, v) for k, v in pairs_of(jobs, curves).items() if k[0] != k[1]]
    return dict(found), key[0]


def test_kinds_of_the_table_share_as_it_says() -> None:
    found, first = two(RESNET, A3C)
    table = published_table()
    share = table.retained("v100", 1)
    a, b = KINDS.index(first), KINDS.index(RESNET if first == A3C else A3C)
    assert found["v100"] == pytest.approx((10 * share[a, b], 10 * share[b, a]))


def test_what_does_not_fit_together_is_no_pair() -> None:
    share = published_table().retained("k80", 1)
    unfit = [(KINDS[a], KINDS[b]) for a, b in np.argwhere(share == 0) if a != b]
    assert unfit
    curves = {"k80": Curve((10.0,))}
    for one, other in unfit:
        jobs = [make_job(workload=name, gpus=1, curves=curves) for name in (one, other)]
        assert not [key for key in pairs_of(jobs, ["k80"]) if key[0] != key[1]]


def test_a_workload_that_is_unknown_gets_the_mean_of_the_table() -> None:
    votes = votes_of("job:1", 1)
    assert votes.source == "estimated"
    assert votes.weights == pytest.approx(np.full(len(KINDS), 1 / len(KINDS)))
    found, _ = two("job:1", "job:2")
    assert set(found) == {"k80", "v100", "titan_xp"}
    assert all(0 < speed <= 10.0 for both in found.values() for speed in both)


def test_measured_pairs_name_the_kind_that_a_workload_is_like() -> None:
    share = published_table().retained("v100", 1)[KINDS.index(LM)]
    fingerprint = {("v100", kind): float(share[n]) for n, kind in enumerate(KINDS[:12])}
    assert KINDS[int(np.argmax(votes_of("job:1", 1, fingerprint).weights))].startswith("LM")


def test_names_for_programs_find_their_kind() -> None:
    assert slug(RESNET) == "resnet-50-64"
    assert votes_of("resnet-50-64", 1).source == "catalogue"
    assert len({slug(kind) for kind in KINDS} | set(catalogue())) == len(KINDS) + len(catalogue())


@pytest.mark.parametrize(("gang", "known"), [(1, 1), (2, 2), (3, 2), (8, 8), (64, 8)])
def test_gangs_between_the_table_s_take_the_next_smaller(gang: int, known: int) -> None:
    assert nearest_gang(gang) == known
    kinds = votes_of(RESNET, known).weights[None, :]
    assert all(((share >= 0) & (share <= 1)).all() for share in kept(known, kinds).values())


def test_jobs_that_differ_only_in_number_are_one_workload() -> None:
    curves = {"v100": Curve((10.0,))}
    jobs = [make_job(workload=LM, gpus=1, curves=curves) for _ in range(500)]
    assert set(pairs_of(jobs, ["v100"])) == {(LM, LM, 1)}
