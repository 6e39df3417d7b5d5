"""Optima found through prices against the same problems by rows, level by level and as whole programs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from scheduling.domain import Curve, Entity, Snapshot
from scheduling.policies import load_policy
from scheduling.policies.time_shares.hierarchical import divide_weight, level_tree, tree
from scheduling.policies.time_shares.max_min_fairness import steps_per_level
from scheduling.policies.time_shares.programs.column_prices import ColumnPrices, optimise_by_prices
from scheduling.policies.time_shares.programs.cutting_planes import CuttingPlanes, optimise
from scheduling.policies.time_shares.programs.groups import ByJob, Fractions, build
from scheduling.policies.time_shares.programs.max_min import MakespanSearch, MaxMinSearch, highest, soonest
from scheduling.policies.time_shares.programs.max_sum import Offers
from scheduling.policies.time_shares.programs.pricing_problem import JobClass, PricingProblem
from scheduling.policies.time_shares.programs.throughput_per_cost import best_ratio, best_value, cost_of_columns
from scheduling.policies.time_shares.programs.ungrouping.ungroup import achieved, expand
from scheduling.policies.time_shares.programs.water_filling import Active, fill
from scheduling.policies.time_shares.programs.water_filling_by_price import fill_by_price
from scheduling.solvers.lp import Engine, Floats
from tests.builders import make_job, make_nodes, make_snapshot
from tests.scheduling.policies.test_fractions import problems as with_few_kinds

TYPES = ("a", "b", "c", "d")
LIMITS: tuple[Engine, float] = ("highs", 30.0)
TREE = {
    "org": Entity(None, 1.0),
    "x": Entity("org", 2.0),
    "y": Entity("org", 1.0, "fifo"),
    "z": Entity(None, 0.5),
}
slowly = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def problems(draw: st.DrawFn, most: int = 25) -> Snapshot:
    """Jobs of which most differ, on up to four types, some of which some jobs cannot use or are equally fast on."""
    types = TYPES[: draw(st.integers(1, 4))]
    nodes = [
        node
        for n, kind in enumerate(types)
        for node in make_nodes(draw(st.integers(1, 8)), type=kind, first_id=100 * n)
    ]
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    whole = draw(st.booleans())  # round numbers, so that there are ties
    jobs = []
    for number in range(1, 1 + draw(st.integers(1, most))):
        gang = int(rng.choice([1, 1, 2]))
        speeds = rng.integers(1, 4, len(types)).astype(float) if whole else rng.uniform(0.5, 4.0, len(types))
        speeds *= rng.random(len(types)) < 0.85
        jobs.append(
            make_job(
                number=number,
                curves={kind: Curve((*(0.0,) * (gang - 1), float(v))) for kind, v in zip(types, speeds, strict=True)},
                min_gpus=gang,
                submitted_at=1000.0 - rng.integers(0, 500),
                remaining_steps=float(rng.integers(1, 2000)),
                weight=float(rng.integers(1, 4)),
                project=str(rng.choice(["org", "x", "y", "z"])),
            )
        )
    return make_snapshot(*jobs, nodes=nodes, entities=TREE)


def check(found: Fractions, shares: Floats, needs: Floats) -> None:
    """Shares are valid and everybody has what it needs."""
    gang = found.gang[found.group_of]
    assert (shares >= 0).all()
    assert (shares.sum(axis=0) <= 1 + 1e-7).all()
    assert ((shares * gang).sum(axis=1) <= found.capacity * (1 + 1e-7)).all()
    reached = (shares * found.throughput[found.group_of].T).sum(axis=0)
    assert (reached >= needs * (1 - 1e-7) - 1e-9).all()


def by_prices(found: Fractions, demand: MaxMinSearch | MakespanSearch, *, maximise: bool) -> tuple[float, Floats]:
    job_classes = JobClass.by(found.group_of, *demand.keys)
    choices, units = PricingProblem(found, job_classes), demand.of(job_classes.first)
    market = ColumnPrices(choices, units.needs, units.alone(choices.fastest), maximise=maximise)
    reached = optimise_by_prices(market, *LIMITS)
    return reached.theta, reached.shares[:, job_classes.unit_of]


@slowly
@given(snapshot=problems())
def test_the_highest_level_is_the_one_by_rows(snapshot: Snapshot) -> None:
    found = build(snapshot)
    if not found.jobs:
        return
    climb = MaxMinSearch(steps_per_level(found) * np.array([job.weight for job in found.jobs]))
    level, shares = by_prices(found, climb, maximise=True)
    assert level == pytest.approx(highest(found, climb, *LIMITS)[0], rel=1e-8)
    check(found, shares, climb.per_level * level)


@slowly
@given(snapshot=problems())
def test_the_soonest_end_is_the_one_by_rows(snapshot: Snapshot) -> None:
    found = build(snapshot)
    if not found.jobs:
        return
    steps = np.array([job.remaining_steps for job in found.jobs])
    spent = np.array([snapshot.now - job.submitted_at for job in found.jobs])
    alone = (found.throughput * found.isolated).sum(axis=1)[found.group_of]
    for race in (
        MakespanSearch(steps, np.ones(len(steps)), np.zeros(len(steps))),
        MakespanSearch(steps, steps / alone, spent),
    ):
        theta, shares = by_prices(found, race, maximise=False)
        assert theta == pytest.approx(soonest(found, race, *LIMITS)[0], rel=1e-7)
        check(found, shares, race.needs(theta)[0])


def literal_levels(found: Fractions, per_level: Floats, rates: Callable[[Active], Floats]) -> Floats:
    """Raise all that can rise until one cannot, and try one by one which those are."""
    jobs, kinds = len(found.jobs), len(found.types)
    speeds = found.throughput[found.group_of]
    steps = np.zeros((jobs, jobs * kinds))
    for n in range(jobs):
        steps[n, n * kinds : (n + 1) * kinds] = speeds[n]
    time = np.repeat(np.eye(jobs), kinds, axis=1)
    gpus = np.tile(np.eye(kinds), jobs) * np.repeat(found.gang[found.group_of], kinds)
    runs = [(0.0, 1.0 if v else 0.0) for v in speeds.ravel()]

    def largest(level: Floats, rise: Floats) -> float:
        rows = np.vstack(
            (np.hstack((-steps, (per_level * rise)[:, None])), np.pad(np.vstack((time, gpus)), ((0, 0), (0, 1))))
        )
        limits = np.concatenate((-per_level * level * (1 - 1e-12), np.ones(jobs), found.capacity))
        answer = linprog(np.append(np.zeros(jobs * kinds), -1.0), A_ub=rows, b_ub=limits, bounds=[*runs, (0, None)])
        return float(answer.x[-1]) if answer.status == 0 else 0.0

    level, active = np.zeros(jobs), np.ones(jobs, dtype=bool)
    while active.any():
        rate = rates(active)
        level = level + rate * largest(level, rate)
        for n in np.nonzero(active)[0].tolist():
            active[n] = largest(level, np.eye(jobs)[n]) > 1e-7
    return level


def literal_hierarchy(snapshot: Snapshot) -> Floats:
    found = build(snapshot)
    root, weights = tree(found.jobs, snapshot.entities), np.array([job.weight for job in found.jobs])

    def rates(active: Active) -> Floats:
        rate = np.zeros(len(active))
        divide_weight(root, 1.0, rate, active, weights)
        return rate

    return literal_levels(found, steps_per_level(found), rates)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(snapshot=problems(most=6))
def test_levels_of_a_tree_are_the_literal_ones(snapshot: Snapshot) -> None:
    found = build(snapshot)
    if not found.jobs:
        return
    per_level, weights = steps_per_level(found), np.array([job.weight for job in found.jobs])
    root = tree(found.jobs, snapshot.entities)

    job_classes, level_node = level_tree(root, found, weights)
    level, values = fill_by_price(
        found, job_classes, level_node, per_level[job_classes.first], weights[job_classes.first], *LIMITS
    )
    assert level == pytest.approx(literal_hierarchy(snapshot), rel=1e-5, abs=1e-5)
    assert isinstance(values, ByJob)
    check(found, values.shares, level * per_level)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(snapshot=with_few_kinds(pairs=True))
def test_levels_with_shared_gpus_are_those_step_by_step(snapshot: Snapshot) -> None:
    found = build(snapshot, variant="packed")
    if not found.jobs:
        return
    per_level, weights = steps_per_level(found), np.array([job.weight for job in found.jobs])
    root = tree(found.jobs, snapshot.entities)

    def rates(active: Active) -> Floats:
        rate = np.zeros(len(active))
        divide_weight(root, 1.0, rate, active, weights)
        return rate

    job_classes, level_node = level_tree(root, found, weights)
    level, values = fill_by_price(
        found, job_classes, level_node, per_level[job_classes.first], weights[job_classes.first], *LIMITS
    )
    assert level == pytest.approx(fill(found, per_level, rates, *LIMITS)[0], rel=1e-6, abs=1e-7)
    reached = achieved(found, expand(found, values, level * per_level))
    assert all(reached[job.id] >= need * (1 - 1e-6) for job, need in zip(found.jobs, level * per_level, strict=True))


@slowly
@given(snapshot=problems(), apart=st.booleans())
def test_the_largest_sum_is_the_whole_program_s(snapshot: Snapshot, apart: bool) -> None:
    found = build(snapshot, apart=apart)
    if not found.jobs:
        return
    rank = np.arange(1.0, len(found.gang) + 1)
    worth = found.worth_of_columns(rank / found.fastest)
    values = Offers(found, worth).best(*LIMITS)
    assert worth @ values == pytest.approx(found.program(worth).solve().objective, rel=1e-9)
    shares = np.zeros((len(found.types), len(found.gang)))
    shares[found.columns.kind, found.columns.group] = values / found.count[found.columns.group]
    check(found, shares[:, found.group_of], np.zeros(len(found.jobs)))


@slowly
@given(snapshot=with_few_kinds(pairs=True), apart=st.booleans(), prices=st.tuples(*[st.floats(0.1, 5.0)] * 3))
def test_the_best_value_is_the_one_by_steps(
    snapshot: Snapshot, apart: bool, prices: tuple[float, float, float]
) -> None:
    found = build(snapshot, variant="packed", apart=apart)
    if not found.jobs:
        return
    cost = cost_of_columns(found, dict(zip("abc", prices, strict=True)))
    worth = found.worth_of_columns(1.0 / found.fastest)
    ratio, values = best_value(found, worth, cost, *LIMITS)
    by_steps, others = best_ratio(found.program(), worth, cost, *LIMITS)
    assert ratio == pytest.approx(by_steps, rel=1e-8)
    assert float(worth @ values) == pytest.approx(float(worth @ others), rel=1e-6)
    assert float(worth @ values) == pytest.approx(ratio * float(cost @ values), rel=1e-8)
    whole = found.program()
    for columns, row, most in zip(whole._columns, whole._values, whole._upper, strict=True):
        assert float(row @ values[columns]) <= most + 1e-7


def test_a_job_that_waits_behind_a_gang_in_its_project_leaves_the_others_what_they_have() -> None:
    """Steps alone find no bottleneck here: the gang that comes second in its project can only have what is left."""
    speeds = ({"a": 2.3}, {"a": 2.2, "d": 3.9}, {"a": 2.8, "c": 2.2, "d": 2.2})
    jobs = [
        make_job(
            number=n,
            curves={kind: Curve((*(0.0,) * (gang - 1), v)) for kind, v in row.items()},
            min_gpus=gang,
            project=project,
            submitted_at=submitted_at,
        )
        for n, (row, gang, project, submitted_at) in enumerate(
            zip(speeds, (2, 2, 1), "xyy", (529.0, 768.0, 529.0), strict=True), start=1
        )
    ]
    sizes = {"a": 2, "b": 1, "c": 1, "d": 1}
    nodes = [
        node for n, (kind, gpus) in enumerate(sizes.items()) for node in make_nodes(gpus, type=kind, first_id=9 * n)
    ]
    snapshot = make_snapshot(*jobs, nodes=nodes, entities=TREE)
    answer = load_policy("hierarchical").allocate(snapshot)
    assert answer.figures["objective"] == pytest.approx(literal_hierarchy(snapshot).min(), abs=1e-6)


def test_pairs_are_left_alone_where_one_job_decides_the_makespan() -> None:
    """The long job is as fast as it can be alone, and the others have time enough beside it."""
    curves = {"a": Curve((1.0,))}
    jobs = [make_job(number=n, curves=curves, workload="m", remaining_steps=left) for n, left in ((1, 90.0), (2, 9.0))]
    pairs = {("m", "m", 1): {"a": (0.9, 0.9)}}
    for gpus in (2, 1):
        found = build(make_snapshot(*jobs, nodes=make_nodes(gpus, type="a"), pairs=pairs), variant="packed")
        race = MakespanSearch(np.array([90.0, 9.0]), np.ones(2), np.zeros(2))
        theta, values = soonest(found, race, *LIMITS)
        assert isinstance(values, ByJob) == (gpus == 2)
        # On one GPU 9 steps of both are made together in 10 s, and the other 81 alone.
        assert theta == pytest.approx(90.0 if gpus == 2 else 91.0)


def test_jobs_that_are_alike_are_treated_alike() -> None:
    """Three pairs of twins on GPUs that are short: what one has its twin has."""
    speeds = [{"a": 1.0, "b": 3.0}, {"a": 1.0, "b": 3.0}, {"a": 2.0, "b": 2.5}] * 2
    jobs = [
        make_job(number=n, curves={kind: Curve((v,)) for kind, v in row.items()})
        for n, row in enumerate(speeds, start=1)
    ]
    found = build(make_snapshot(*jobs, nodes=[*make_nodes(1, type="a"), *make_nodes(2, type="b", first_id=9)]))
    level, shares = by_prices(found, MaxMinSearch(steps_per_level(found)), maximise=True)
    assert level > 0
    for group in found.members:
        assert np.ptp(shares[:, group], axis=1) == pytest.approx([0.0, 0.0])


def test_distinct_jobs_by_the_hundreds_have_the_optimum_of_the_rows() -> None:
    rng = np.random.default_rng(7)
    nodes = [node for n, kind in enumerate(TYPES[:3]) for node in make_nodes(100, type=kind, first_id=1000 * n)]
    jobs = [
        make_job(
            number=n, curves={kind: Curve((float(v),)) for kind, v in zip(TYPES, rng.uniform(1, 9, 3), strict=False)}
        )
        for n in range(1, 501)
    ]
    found = build(make_snapshot(*jobs, nodes=nodes))
    climb = MaxMinSearch(steps_per_level(found))
    level, by_job = highest(found, climb, *LIMITS)
    costs = np.zeros(len(found.columns) + 1)
    costs[-1] = 1.0
    tangents, start = CuttingPlanes(found, found.program(costs, extra=1)), climb.alone(found.fastest[found.group_of])
    assert level == pytest.approx(optimise(tangents, climb.needs, start, *LIMITS)[0], rel=1e-8)
    assert not isinstance(by_job, np.ndarray)
    check(found, by_job.shares, climb.per_level * level)
