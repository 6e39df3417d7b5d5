"""The exact policy against brute force and against the greedy."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduling.capacity.cluster_view import view
from scheduling.errors import SolverError
from scheduling.policies import load_policy
from scheduling.policies.elastic import f_scheduling_exact
from scheduling.policies.elastic.f_scheduling import pose, solve
from scheduling.policies.elastic.variance_program import Choice, SearchBudget, best_plan
from tests.builders import make_curve, make_job, make_snapshot


@settings(max_examples=25, deadline=None)
@given(
    steps=st.lists(st.lists(st.floats(0.01, 5), min_size=1, max_size=4), min_size=1, max_size=4),
    gpus=st.integers(1, 9),
    bound=st.sampled_from([0.0005, 0.005, 0.02, 0.5]),
)
def test_it_equals_brute_force_and_is_never_below_a_fair_greedy(
    steps: list[list[float]], gpus: int, bound: float
) -> None:
    jobs = [make_job(curve=make_curve(*(sum(values[: n + 1]) for n in range(len(values))))) for values in steps]
    snapshot = make_snapshot(*jobs, nodes=gpus)
    field = view(snapshot)
    problem = pose(snapshot, field, "paper")
    greedy, variance = solve(snapshot, field, problem, bound)
    fair = [
        choice.value
        for counts in product(*(range(kind.low[0], len(kind.value[0])) for kind in problem.kinds))
        if sum(counts) <= gpus and (choice := Choice.of(problem, [(0, n) for n in counts])).variance < bound
    ]
    found = best_plan(problem, greedy, bound, SearchBudget(1_000, 10_000))
    if not fair:
        assert found is None
        return
    assert found is not None
    assert Choice.of(problem, found).value == pytest.approx(max(fair), rel=1e-6)
    if variance < bound:
        assert Choice.of(problem, found).value >= Choice.of(problem, greedy).value * (1 - 1e-9)


def test_interchangeable_jobs_are_one_in_the_program() -> None:
    jobs = [make_job(curve=make_curve(1, 1.8, 2.4)) for _ in range(60)]
    found = load_policy("f_scheduling_exact", {"v_bound": 0.05}).allocate(make_snapshot(*jobs, nodes=100))
    assert found.figures["exact"] == 1.0
    assert found.figures["gap"] >= 0.0


def test_it_says_when_the_greedy_plan_was_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise SolverError("its time limit")

    monkeypatch.setattr(f_scheduling_exact, "best_plan", fail)
    job = make_job()
    found = load_policy("f_scheduling_exact").allocate(make_snapshot(job))
    assert found.figures["exact"] == 0.0
    assert found.counts is not None
    assert found.counts[job.id].count == 6
    assert "The greedy plan was used because the solver stopped with its time limit." in found.reasons[job.id].text
