"""When rounds of fractions of time begin, who keeps its GPUs, who is ahead, and what is counted, at the edges."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from scheduling.capacity.cluster_view import view
from scheduling.domain import Allocation, Curve, Gang, Job, Limit, Snapshot
from scheduling.engine.rounds import plan_round
from scheduling.engine.time_sharing import rounds
from scheduling.engine.time_sharing.allocation_builder import AllocationBuilder
from scheduling.engine.time_sharing.rounds import round_end, with_least_gangs
from scheduling.engine.time_sharing.shares_ledger import EDGE_S, TimeShareState
from scheduling.errors import SolverError
from scheduling.lifecycle import State
from scheduling.policies import load_policy
from scheduling.policies.capabilities import Answer, Capabilities, Needs
from scheduling.policies.time_shares.max_min_fairness import MaxMinFairness
from scheduling.policies.time_shares.programs.deficits import DeficitTable
from scheduling.policies.time_shares.programs.last_answer import MEMORY
from tests.builders import make_curve, make_job, make_nodes, make_snapshot
from tests.scheduling.engine.test_timesharing import ROUND_S, Cluster, jobs_of

NOW = 1_000.0
ONE = Curve((1.0,))


class Counting(MaxMinFairness):
    """How often it was asked; it fails where it is told to."""

    asked = 0
    fails = False

    def allocate(self, snapshot: Snapshot) -> Allocation:
        self.asked += 1
        if self.fails:
            raise SolverError("kTimeLimit")
        return super().allocate(snapshot)


class Ageing(Counting):
    capabilities = Capabilities(Answer.TIME_SHARES)


class Packing(Counting):
    capabilities = Capabilities(Answer.TIME_SHARES, needs=Needs.PAIRS, time_dependent=False)


def policy(kind: type[Counting] = Counting, **changes: Any) -> Counting:
    return kind(kind.Parameters(**{"round_seconds": ROUND_S, **changes}))


def books(jobs: Mapping[str, Mapping[str, tuple[float, float]]]) -> DeficitTable:
    """{job: {type: (share, seconds had)}}."""
    kinds = tuple(sorted({kind for by_type in jobs.values() for kind in by_type}))
    figures = np.array([[by_type.get(kind, (0.0, 0.0)) for kind in kinds] for by_type in jobs.values()])
    return DeficitTable(tuple(jobs), kinds, figures[:, :, 0], figures[:, :, 1])


# When a round begins ---------------------------------------------------------------------------------------


def test_a_round_ends_a_little_early_rather_than_late() -> None:
    assert round_end({MEMORY: {"round_end": 500.0}}) == 500.0 - EDGE_S
    assert round_end({}) == -math.inf
    assert round_end({"other": {}}) == -math.inf


@pytest.mark.parametrize(("before_s", "turns"), [(50.0, False), (2 * EDGE_S, False), (EDGE_S / 2, True), (0.0, True)])
def test_turns_change_at_the_round_s_end_and_not_before(before_s: float, turns: bool) -> None:
    one, two = jobs_of(2, a=1.0)
    cluster = Cluster(one, two, a=1)
    cluster.step()
    cluster.wait(ROUND_S - before_s)
    cluster.step()
    assert (cluster.holds(one) == ()) == turns


def test_a_round_begins_at_the_very_moment_at_which_the_last_one_ends() -> None:
    one, two = jobs_of(2, a=1.0)
    cluster = Cluster(one, two, a=1)
    cluster.step()
    cluster.snapshot = replace(cluster.snapshot, now=round_end(cluster.snapshot.memory))
    cluster.step()
    assert cluster.holds(one) == ()


def test_the_next_round_is_as_long_as_the_policy_says_from_when_it_began() -> None:
    one, two = jobs_of(2, a=1.0)
    cluster = Cluster(one, two, a=1)
    assert cluster.step().next_wake_at == NOW + ROUND_S
    cluster.wait(ROUND_S + 7.0)
    cluster.step()
    assert cluster.snapshot.memory[MEMORY]["round_end"] == NOW + 2 * ROUND_S + 7.0
    cluster.wait(10.0)
    cluster.step()
    assert cluster.snapshot.memory[MEMORY]["round_end"] == NOW + 2 * ROUND_S + 7.0


def test_other_settings_begin_a_round_at_once() -> None:
    one, two = jobs_of(2, a=1.0)
    cluster = Cluster(one, two, a=1)
    cluster.step()
    cluster.wait(30.0)
    cluster.policy = load_policy("max_min_fairness", {"round_seconds": 2 * ROUND_S})
    cluster.step()
    assert cluster.snapshot.memory[MEMORY]["round_end"] == NOW + 30.0 + 2 * ROUND_S
    assert cluster.holds(two) == (0,)
    cluster.wait(30.0)
    cluster.step()
    assert cluster.holds(two) == (0,)


@pytest.mark.parametrize(
    ("changes", "wakes"),
    [
        ({}, True),
        ({"holds": (0,)}, True),
        ({"holds": (0,), "restartable": False}, False),
        ({"holds": (0,), "resizable": False}, False),
        ({"holds": (0,), "held": True}, False),
        ({"held": True}, False),
        ({"restartable": False}, True),
        ({"holds": (0,), "state": State.LAUNCHING}, True),
    ],
)
def test_rounds_go_on_while_a_job_has_turns(changes: dict[str, Any], wakes: bool) -> None:
    snapshot = make_snapshot(make_job(gpus=1, curve=ONE, **changes), nodes=1)
    at = plan_round(snapshot, policy()).next_wake_at
    assert at == (NOW + ROUND_S if wakes else None)
    beside = make_snapshot(*snapshot.jobs, make_job(gpus=1, curve=ONE), make_job(gpus=1, held=True), nodes=1)
    assert plan_round(beside, policy()).next_wake_at == NOW + ROUND_S


# Which gang is the least -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("curve", "min_gpus", "least"),
    [((1.0, 2.0), 1, 1), ((0.0, 2.0), 1, 2), ((0.0, 2.0), 2, 2), ((0.0, 0.0, 2.0), 2, 3), ((0.0, 0.0), 1, 1)],
)
def test_the_least_gang_is_one_on_which_the_job_trains(curve: tuple[float, ...], min_gpus: int, least: int) -> None:
    job = make_job(min_gpus=min_gpus, curve=Curve(curve))
    other = make_job(gpus=1)
    snapshot = make_snapshot(job, other)
    for _ in range(2):  # once found it is not looked for again
        found = with_least_gangs(snapshot)
        assert [one.min_gpus for one in found.jobs] == [least, 1]
        assert found.jobs[1] is other
        assert (found is snapshot) == (least == min_gpus)


# When fractions are computed -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "after_s", "asked"),
    [
        (Counting, 5 * ROUND_S, 1),
        (Ageing, 3 * ROUND_S - 1.0, 1),
        (Ageing, 3 * ROUND_S, 2),
        (Ageing, 3 * ROUND_S + 1.0, 2),
        (Packing, 3 * ROUND_S - 1.0, 1),
        (Packing, 3 * ROUND_S, 2),
    ],
)
def test_fractions_that_time_changes_are_computed_again_once_they_are_old(
    kind: type[Counting], after_s: float, asked: int
) -> None:
    one, two = jobs_of(2, a=1.0)
    cluster = Cluster(one, two, policy=policy(kind, recompute_seconds=3 * ROUND_S), a=1)
    cluster.step()
    cluster.wait(after_s)
    cluster.step()
    assert cluster.policy.asked == asked  # type: ignore[attr-defined]


@pytest.mark.parametrize(("after_s", "computed_at"), [(ROUND_S, NOW), (3 * ROUND_S, NOW + 3 * ROUND_S)])
def test_what_was_promised_is_settled_once_it_is_old_though_nothing_is_computed(
    after_s: float, computed_at: float
) -> None:
    one, two = jobs_of(2, a=1.0)
    cluster = Cluster(one, two, policy=policy(recompute_seconds=3 * ROUND_S), a=1)
    cluster.step()
    cluster.wait(after_s)
    cluster.step()
    assert cluster.snapshot.memory[MEMORY]["computed_at"] == computed_at


def test_old_fractions_are_left_alone_within_a_round() -> None:
    """Two wait for an idle GPU, and nothing but time has passed."""
    one, two, three = jobs_of(3, a=1.0)
    settings: Any = {"recompute_seconds": 10.0}
    cluster = Cluster(one, two, three, policy=policy(Ageing, **settings), a=1)
    cluster.step()
    cluster.wait(50.0)
    jobs = (replace(cluster.snapshot.jobs[0], gpu_ids=(), gang=None, state=State.WAITING_FOR_RESOURCE),)
    cluster.snapshot = replace(cluster.snapshot, jobs=(*jobs, *cluster.snapshot.jobs[1:]))
    before = cluster.snapshot.memory[MEMORY]
    cluster.step()
    assert cluster.policy.asked == 1  # type: ignore[attr-defined]
    after = cluster.snapshot.memory[MEMORY]
    assert {key: after[key] for key in ("at", "computed_at", "figures")} == {
        key: before[key] for key in ("at", "computed_at", "figures")
    }


def test_a_computation_that_failed_is_tried_again_once_it_is_old() -> None:
    one, two, three = jobs_of(3, a=1.0)
    failing = policy(recompute_seconds=3 * ROUND_S)
    cluster = Cluster(one, two, policy=failing, a=1)
    cluster.step()
    failing.fails = True
    cluster.arrive(three)
    cluster.wait(ROUND_S)
    assert cluster.step().figures["solver_failed"] == 1.0
    cluster.wait(ROUND_S)
    cluster.step()
    assert failing.asked == 2
    failing.fails = False
    cluster.wait(2 * ROUND_S)
    assert "solver_failed" not in cluster.step().figures
    assert failing.asked == 3


@pytest.mark.parametrize(
    ("gpus", "waiting", "asked"),
    [(1, 2, 1), (2, 1, 1), (2, 2, 2), (2, 3, 2)],
)
def test_within_a_round_it_is_computed_only_where_two_wait_for_what_is_idle(
    gpus: int, waiting: int, asked: int
) -> None:
    first, *others = jobs_of(1 + waiting, a=1.0)
    cluster = Cluster(first, policy=policy(), a=gpus)
    cluster.step()
    cluster.wait(10.0)
    for job in others:
        cluster.arrive(job)
    cluster.step()
    assert cluster.policy.asked == asked  # type: ignore[attr-defined]


def test_who_does_not_fit_what_is_idle_competes_for_nothing() -> None:
    first, small = jobs_of(2, a=1.0)
    large = make_job(gpus=2, curves={"a": make_curve()})
    bound = replace(small, id="bound", limits=("l",))
    for second in (large, bound):
        cluster = Cluster(first, policy=policy(), a=2)
        cluster.snapshot = replace(cluster.snapshot, limits={"l": Limit("gpus", 0, level="project Speech")})
        cluster.step()
        cluster.wait(10.0)
        cluster.arrive(small)
        cluster.arrive(second)
        cluster.step()
        assert cluster.policy.asked == 1  # type: ignore[attr-defined]
        assert cluster.holds(small) == (1,)


def test_who_fits_an_idle_gpu_of_one_of_its_types_competes_for_it() -> None:
    first, *others = (replace(job, curves={"a": Curve((5.0,)), "b": ONE}) for job in jobs_of(3, a=1.0))
    cluster = Cluster(first, policy=policy(), a=1, b=1)
    cluster.step()
    assert cluster.holds(first) == (0,)
    cluster.wait(10.0)
    for job in others:
        cluster.arrive(job)
    cluster.step()
    assert cluster.policy.asked == 2  # type: ignore[attr-defined]


def test_the_deviation_is_what_is_owed_most() -> None:
    one, two = jobs_of(2, a=1.0)
    cluster = Cluster(one, two, a=1)
    cluster.step()
    cluster.wait(ROUND_S)
    assert cluster.step().figures["deviation"] == pytest.approx(ROUND_S / 2)
    ledger = TimeShareState(
        computed_at=NOW, books=books({"x": {"a": (0.5, 10.0)}, "y": {"a": (0.0, 0.0), "b": (0.25, 0.0)}})
    )
    assert rounds._debts(ledger, NOW + 100.0) == 40.0
    assert rounds._debts(ledger, NOW - 100.0) == 0.0
    assert rounds._debts(TimeShareState(books=books({"x": {"a": (0.0, -9.0)}})), NOW) == 0.0


# Who keeps its GPUs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cost_s", "had_s", "stays"),
    [(8.0, 319.0, True), (8.0, 320.0, False), (8.0, 321.0, False), (0.0, ROUND_S, False), (2.5, ROUND_S, False)],
)
def test_a_lease_ends_when_the_restart_is_a_fortieth_of_the_time_since(
    cost_s: float, had_s: float, stays: bool
) -> None:
    one, two = (replace(job, restart_cost_s=cost_s) for job in jobs_of(2, a=1.0))
    cluster = Cluster(one, two, a=1)
    cluster.step()
    cluster.wait(had_s)
    cluster.step()
    assert (cluster.holds(one) == (0,)) == stays


def test_another_part_for_restarts_makes_leases_shorter() -> None:
    one, two = (replace(job, restart_cost_s=8.0) for job in jobs_of(2, a=1.0))
    cluster = Cluster(one, two, policy=policy(restart_part=0.1), a=1)
    cluster.step()
    cluster.wait(ROUND_S)
    cluster.step()
    assert cluster.holds(two) == (0,)


def lease(job: Job, *, share: float, given_at: float | None, **more: Any) -> list[str]:
    ledger = TimeShareState(books=books({job.id: {"a": (share, 0.0)}}))
    if given_at is not None:
        ledger.began[job.id] = given_at
    snapshot = make_snapshot(job, nodes=make_nodes(2, type="a"), **more)
    settings: Any = policy().parameters
    return [one.id for one in rounds._leased_jobs(ledger, snapshot, view(snapshot), settings)]


def test_on_lease_is_who_is_promised_time_on_what_it_was_given_lately() -> None:
    job = make_job(holds=(0,), type="a", restart_cost_s=5.0)
    assert lease(job, share=0.5, given_at=NOW - 10.0) == [job.id]
    assert lease(job, share=0.5, given_at=NOW - 200.0) == []
    assert lease(job, share=0.5, given_at=None) == []  # since when is not known
    assert lease(job, share=0.0, given_at=NOW - 10.0) == []
    exactly = (10.0 + EDGE_S) * 0.025
    assert lease(replace(job, restart_cost_s=exactly), share=0.5, given_at=NOW - 10.0) == []
    assert lease(replace(job, restart_cost_s=exactly + 1e-9), share=0.5, given_at=NOW - 10.0) == [job.id]
    assert lease(replace(job, held=True), share=0.5, given_at=NOW - 10.0) == []
    assert lease(replace(job, state=State.RUNNING_PROTECTED), share=0.5, given_at=NOW - 10.0) == []
    waits = make_job(type="a", restart_cost_s=5.0)
    assert lease(waits, share=0.5, given_at=NOW - 10.0) == []


def test_since_when_each_has_its_gpus() -> None:
    kept, moved, fixed = (make_job(holds=(n,), type="a") for n in range(3))
    fixed = replace(fixed, held=True)
    new, gone = make_job(type="a"), make_job(type="a")
    snapshot = make_snapshot(kept, moved, fixed, new, gone, nodes=make_nodes(6, type="a"))
    field = view(snapshot)
    builder = AllocationBuilder(field)
    assert kept.gang is not None
    builder.give(kept, kept.gang)
    builder.give(moved, Gang("a", 2))
    builder.give(new, Gang("a", 1))
    began = {kept.id: 1.0, moved.id: 2.0, fixed.id: 3.0, gone.id: 4.0}
    found = rounds._start_times(TimeShareState(began=began), snapshot, field, builder)
    assert found == {kept.id: 1.0, moved.id: NOW, fixed.id: 3.0, new.id: NOW}
    found = rounds._start_times(TimeShareState(), snapshot, field, builder)
    assert found == {kept.id: NOW, moved.id: NOW, new.id: NOW}


def test_who_starts_within_a_round_has_its_gpus_since_then() -> None:
    one, two, three = jobs_of(3, a=1.0)
    cluster = Cluster(one, a=2)
    cluster.step()
    cluster.wait(30.0)
    cluster.arrive(two)
    cluster.arrive(three)
    cluster.step()
    assert cluster.snapshot.memory[MEMORY]["began"] == {one.id: NOW, two.id: NOW + 30.0}
