"""Who is ahead in a round of fractions of time, and who is given what."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduling.capacity.cluster_view import view
from scheduling.domain import Curve, Gang, Job, Limit
from scheduling.engine.time_sharing import rounds
from scheduling.engine.time_sharing.allocation_builder import AllocationBuilder
from scheduling.engine.time_sharing.shares_ledger import TimeShareState
from scheduling.lifecycle import State
from scheduling.policies import load_policy
from scheduling.policies.base import Policy
from scheduling.policies.time_shares.programs.deficits import DeficitTable
from tests.builders import make_curve, make_job, make_nodes, make_snapshot
from tests.scheduling.engine.test_timesharing import ROUND_S, Cluster, jobs_of
from tests.scheduling.engine.test_timesharing_exactly import NOW, ONE, books, policy

# Who is ahead ----------------------------------------------------------------------------------------------

HERE = {"a": 4, "b": 4}


def ranked(
    shares: Mapping[str, Mapping[str, tuple[float, float]]],
    jobs: list[Job],
    free: Mapping[str, int] = HERE,
    now: float = NOW + 100.0,
) -> list[tuple[str, str]]:
    ledger = TimeShareState(computed_at=NOW, books=books(shares) if shares else DeficitTable())
    return [(job.id, kind) for job, kind in rounds._ranked(ledger, now, jobs, free)]


def of(name: str, **changes: Any) -> Job:
    return replace(make_job(gpus=1, type="a"), id=name, **changes)


@pytest.mark.parametrize(
    ("shares", "order"),
    [
        # had less of what it was promised; nothing yet is before all
        ({"x": {"a": (0.5, 40.0)}, "y": {"a": (0.5, 30.0)}}, ["ya", "xa"]),
        ({"x": {"a": (0.5, 10.0)}, "y": {"a": (0.1, 0.0)}}, ["ya", "xa"]),
        ({"x": {"a": (0.5, 0.1)}, "y": {"a": (0.1, -5.0)}}, ["ya", "xa"]),
        # of equals: whom more is owed over all types, then on this type, then whom more was promised
        ({"x": {"a": (0.3, 0.0)}, "y": {"a": (0.5, 0.0)}}, ["ya", "xa"]),
        ({"x": {"a": (0.2, 0.0), "b": (0.3, 0.0)}, "y": {"a": (0.4, 0.0)}}, ["xb", "xa", "ya"]),
        ({"x": {"a": (0.2, 0.0), "b": (0.2, 0.0)}, "y": {"a": (0.4, 0.0)}}, ["ya", "xa", "xb"]),
        ({"x": {"a": (0.2, -20.0)}, "y": {"a": (0.4, 0.0)}}, ["ya", "xa"]),
        # promised nothing there: not listed
        ({"x": {"a": (0.0, 0.0)}, "y": {"a": (0.5, 99.0)}}, ["ya"]),
        ({"y": {"a": (0.5, 0.0)}}, ["ya"]),
        ({"z": {"a": (0.5, 0.0)}}, []),
        ({}, []),
        # all alike: as they queue
        ({"x": {"a": (0.5, 0.0)}, "y": {"a": (0.5, 0.0)}}, ["xa", "ya"]),
    ],
)
def test_a_job_that_is_ahead(shares: Mapping[str, Mapping[str, tuple[float, float]]], order: list[str]) -> None:
    assert ranked(shares, [of("x"), of("y")]) == [(name[0], name[1]) for name in order]


def test_of_equals_those_that_hold_nothing_come_first() -> None:
    holds = of("x", gpu_ids=(0,), gang=Gang("a", 1), state=State.RUNNING)
    shares = {"x": {"a": (0.5, 0.0)}, "y": {"a": (0.5, 0.0)}}
    assert ranked(shares, [holds, of("y")]) == [("y", "a"), ("x", "a")]


@pytest.mark.parametrize(("free", "listed"), [({"a": 2}, True), ({"a": 1}, False), ({}, False), ({"b": 2}, False)])
def test_types_without_room_for_the_gang_are_left_out(free: dict[str, int], listed: bool) -> None:
    assert bool(ranked({"x": {"a": (0.5, 0.0)}}, [of("x", min_gpus=2)], free)) == listed


def test_a_clock_that_went_back_owes_nothing() -> None:
    """Nobody is behind before the time of the computation, so that whoever had less comes first."""
    shares = {"x": {"a": (0.9, 10.0)}, "y": {"a": (0.1, 20.0)}}
    assert ranked(shares, [of("x"), of("y")], now=NOW - 500.0) == [("x", "a"), ("y", "a")]
    less = {"x": {"a": (0.9, 20.0)}, "y": {"a": (0.1, 10.0)}}
    assert ranked(less, [of("x"), of("y")], now=NOW - 500.0) == [("y", "a"), ("x", "a")]
    assert ranked(less, [of("x"), of("y")], now=NOW + 500.0) == [("x", "a"), ("y", "a")]


@given(st.lists(st.tuples(st.floats(0.01, 1.0), st.just(0.0) | st.floats(0.01, 500.0)), min_size=1, max_size=6))
def test_priority_is_what_was_promised_over_what_was_had(figures: list[tuple[float, float]]) -> None:
    shares = {str(n): {"a": pair} for n, pair in enumerate(figures)}
    order = [int(name) for name, _ in ranked(shares, [of(name) for name in shares])]
    assert sorted(order) == list(range(len(figures)))
    ratios = [figures[n][0] * 100.0 / figures[n][1] if figures[n][1] > 0 else math.inf for n in order]
    assert ratios == sorted(ratios, reverse=True)


# What is given ---------------------------------------------------------------------------------------------


def given_out(
    shares: Mapping[str, Mapping[str, tuple[float, float]]],
    *jobs: Job,
    rule: Policy | None = None,
    limits: Mapping[str, Limit] | None = None,
    **nodes: int,
) -> dict[str, Gang]:
    fleet = [
        node for n, (kind, size) in enumerate(nodes.items()) for node in make_nodes(size, type=kind, first_id=9 * n)
    ]
    snapshot = make_snapshot(*jobs, nodes=fleet, limits=limits or {})
    field = view(snapshot)
    builder = AllocationBuilder(field)
    ledger = TimeShareState(computed_at=NOW - 100.0, books=books(shares) if shares else DeficitTable())
    rounds._assign(ledger, snapshot, field, rule or policy(), builder)
    return builder.counts


def test_gangs_go_out_in_order_while_there_is_room() -> None:
    both = {"a": ONE, "b": ONE}
    jobs = [replace(of(name), curves=both) for name in "xyz"]
    shares = {name: {"a": (0.5, had)} for name, had in zip("xyz", (30.0, 20.0, 10.0), strict=True)}
    only: Any = load_policy("min_cost", {})
    assert given_out(shares, *jobs, rule=only, a=1) == {"z": Gang("a", 1)}
    assert given_out(shares, *jobs, rule=only, a=2) == {"z": Gang("a", 1), "y": Gang("a", 1)}
    assert given_out(shares, *jobs, rule=only, a=2, b=2).keys() == {"z", "y"}  # b is promised to nobody
    assert given_out(shares, *jobs, a=2, b=2) == {"z": Gang("a", 1), "y": Gang("a", 1), "x": Gang("b", 1)}
    twice = {"x": {"a": (0.5, 0.0), "b": (0.5, 0.0)}}
    assert given_out(twice, *jobs[:2], a=1, b=1) == {"x": Gang("a", 1), "y": Gang("b", 1)}  # once only


def test_who_has_what_it_is_given_keeps_the_very_gang() -> None:
    job = replace(make_job(holds=(0,), type="a"), id="x")
    counts = given_out({"x": {"a": (0.5, 0.0)}}, job, a=2)
    assert counts["x"] is job.gang
    wide = replace(make_job(holds=(0, 1), type="a", max_gpus=2), id="x")
    assert given_out({"x": {"a": (0.5, 0.0)}}, wide, a=2) == {"x": Gang("a", 1)}
    other = replace(job, curves={"a": ONE, "b": ONE})
    assert given_out({"x": {"b": (0.5, 0.0)}}, other, a=1, b=1) == {"x": Gang("b", 1)}


def test_a_promise_of_a_type_that_no_longer_runs_the_job_is_not_kept() -> None:
    job = replace(of("x"), curves={"b": ONE})
    assert given_out({"x": {"a": (0.5, 0.0)}}, job, a=1, b=1) == {"x": Gang("b", 1)}  # what is idle
    only: Any = load_policy("min_cost", {})
    assert given_out({"x": {"a": (0.5, 0.0)}}, job, rule=only, a=1, b=1) == {}


def test_limits_hold_among_those_that_are_promised_time() -> None:
    limits = {"l": Limit("gpus", 1, level="project Speech")}
    jobs = [of(name, limits=("l",)) for name in "xy"]
    shares = {"x": {"a": (0.5, 9.0)}, "y": {"a": (0.5, 0.0)}}
    assert given_out(shares, *jobs, limits=limits, a=3) == {"y": Gang("a", 1)}
    free = of("z")
    assert given_out({**shares, "z": {"a": (0.1, 99.0)}}, *jobs, free, limits=limits, a=3).keys() == {"y", "z"}


def test_what_is_idle_goes_to_a_job_that_waits_each_on_its_fastest_type() -> None:
    curves = {"a": Curve((1.0,)), "b": Curve((2.0,))}
    first, second, third = (replace(of(name), curves=curves) for name in "xyz")
    assert given_out({}, first, second, third, a=1, b=1) == {"x": Gang("b", 1), "y": Gang("a", 1)}
    assert given_out({}, first, second, third, a=2, b=1) == {"x": Gang("b", 1), "y": Gang("a", 1), "z": Gang("a", 1)}


@pytest.mark.parametrize(
    ("changes", "limits", "given"),
    [
        ({"min_gpus": 2, "max_gpus": 2}, {}, True),
        ({"min_gpus": 3, "max_gpus": 3}, {}, False),
        ({"curves": {"a": Curve((0.0, 2.0))}, "min_gpus": 1, "max_gpus": 2}, {}, False),
        ({"limits": ("l",)}, {"l": Limit("gpus", 1)}, True),
        ({"limits": ("l",)}, {"l": Limit("gpus", 0)}, False),
    ],
)
def test_idle_gpus_go_only_to_who_may_have_them_and_trains_on_them(
    changes: dict[str, Any], limits: dict[str, Limit], given: bool
) -> None:
    job = replace(of("x", **changes), curves=changes.get("curves", {"a": make_curve()}))
    assert bool(given_out({}, job, limits=limits, a=2)) == given


def test_where_nothing_is_idle_nothing_is_given() -> None:
    holds = [replace(make_job(holds=(n,), type="a"), id=f"h{n}", held=True) for n in range(2)]
    assert given_out({"x": {"a": (0.5, 0.0)}}, *holds, of("x"), a=2) == {}


def test_turns_are_fair_over_many_rounds_of_three_on_two() -> None:
    jobs = jobs_of(3, a=1.0)
    cluster = Cluster(*jobs, a=2)
    cluster.rounds(9)
    assert Counter({job.id: cluster.had[job.id]["a"] / ROUND_S for job in jobs}) == {job.id: 6.0 for job in jobs}
