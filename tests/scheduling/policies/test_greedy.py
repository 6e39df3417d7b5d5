"""The incremental greedy gives the plan of Listing 1, ties included."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduling.capacity.cluster_view import view
from scheduling.policies import load_policy
from scheduling.policies.elastic.f_scheduling import Parameters, bound_hint, pose
from scheduling.policies.elastic.variance_greedy import UNITS, Greedy, JobKind
from tests.builders import make_curve, make_job, make_snapshot
from tests.scheduling.literal import scheduler


@st.composite
def kinds(draw: st.DrawFn) -> JobKind:
    steps = draw(st.lists(st.integers(0, 4), min_size=1, max_size=7))
    if draw(st.booleans()):
        steps = [step * draw(st.integers(1, 10**6)) for step in steps]
    steps[0] += 1
    values, best = [0], 0
    for step in steps:
        best += step
        values.append(best)
    shares = tuple(round(value / best * UNITS) for value in values)
    low = draw(st.integers(1, 3))
    high = draw(st.integers(low, 12))
    worth = tuple(value * UNITS // 1000 for value in values) if draw(st.booleans()) else shares
    return JobKind(
        (worth,), (shares,), (low,), (high,), groups=draw(st.sampled_from([(), ((0,),), ((1,),), ((0, 1),)]))
    )


@settings(max_examples=300, deadline=None)
@given(
    pool=st.lists(kinds(), min_size=1, max_size=4),
    picks=st.lists(st.integers(0, 3), min_size=1, max_size=7),
    free=st.integers(0, 25),
    others=st.lists(st.integers(0, UNITS), max_size=2),
    headroom=st.lists(st.integers(0, 9), min_size=2, max_size=2),
    bound=st.sampled_from([0.0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5]),
)
def test_it_equals_listing_1(
    pool: list[JobKind], picks: list[int], free: int, others: list[int], headroom: list[int], bound: float
) -> None:
    jobs = [pool[pick % len(pool)] for pick in picks]
    lows = [kind.low[0] for kind in jobs]
    greedy = Greedy(jobs, [(0, low) for low in lows], [free], others, bound, headroom)
    assert [count for _, count in greedy.run()] == scheduler(jobs, lows, free, others, bound, headroom)


@settings(max_examples=60, deadline=None)
@given(
    curves=st.lists(st.lists(st.floats(0.1, 50), min_size=1, max_size=6), min_size=1, max_size=6),
    gpus=st.integers(1, 24),
    bound=st.sampled_from([0.001, 0.02, 0.5]),
)
def test_the_policy_equals_listing_1_on_one_type(curves: list[list[float]], gpus: int, bound: float) -> None:
    jobs = [make_job(curve=make_curve(*sorted(values))) for values in curves]
    snapshot = make_snapshot(*jobs, nodes=gpus)
    policy = load_policy("f_scheduling", {"objective": "paper", "v_bound": bound})
    counts = policy.allocate(snapshot).counts
    problem = pose(snapshot, view(snapshot), "paper")
    literal = scheduler(list(problem.kinds), [n for _, n in problem.seats], problem.free[0], [], bound, [])
    assert counts is not None
    assert [counts[job.id].count for job in problem.jobs] == literal


@settings(max_examples=60, deadline=None)
@given(pool=st.lists(kinds(), min_size=2, max_size=6), free=st.integers(0, 20))
def test_variance_is_that_of_the_plan(pool: list[JobKind], free: int) -> None:
    greedy = Greedy(pool, [(0, kind.low[0]) for kind in pool], [free], [], 0.05, [30, 30])
    seats = greedy.run()
    shares = [kind.share[0][min(n, len(kind.share[0]) - 1)] / UNITS for kind, (_, n) in zip(pool, seats, strict=True)]
    mean = sum(shares) / len(shares)
    assert abs(greedy.variance - sum((share - mean) ** 2 for share in shares) / len(shares)) < 1e-12


def test_a_bound_above_the_hint_changes_nothing_and_one_at_it_does() -> None:
    fast, slow = make_curve(10, 20, 30, 40, 50, 60), make_curve(1, 2, 3, 4, 5, 6)
    snapshot = make_snapshot(make_job(curve=fast), make_job(curve=slow), make_job(curve=slow), nodes=6)
    hint = bound_hint(snapshot, Parameters(objective="paper"))

    def plan(bound: float) -> object:
        return load_policy("f_scheduling", {"objective": "paper", "v_bound": bound}).allocate(snapshot).counts

    assert 0 < hint.affected_up_to < hint.never_binds_above
    assert plan(hint.affected_up_to * 1.0001) == plan(1.0)
    assert plan(hint.affected_up_to) != plan(1.0)
