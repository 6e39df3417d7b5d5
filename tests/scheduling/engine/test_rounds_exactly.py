"""What a round makes of a policy's answer: when it is applied, cut down, refused, or worked out without the policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from scheduling.capacity.cluster_view import view
from scheduling.domain import Allocation, Curve, Gang, Guarantee, Job, Limit, Node, Plan, Qos, Reason, Snapshot
from scheduling.domain.reason_codes import ReasonCode
from scheduling.engine import rounds
from scheduling.engine.reclaim.reclaim import CLAIMS
from scheduling.errors import SolverError
from scheduling.lifecycle import State
from scheduling.policies import load_policy
from scheduling.policies.base import Parameters
from scheduling.policies.capabilities import Answer, Capabilities
from tests.builders import make_curve, make_job, make_nodes, make_snapshot

GPU = "titan_xp"
ONE = Gang(GPU, 1)


class Gains(Parameters):
    min_gain: float = 0.0
    min_gain_kind: str = "absolute"
    amortise: bool = False
    protection_factor: float = 3.0
    v_bound: float = 1.0


class Answering:
    """Gives an answer that the test names."""

    name: ClassVar[str] = "answering"
    title: ClassVar[str] = "Answering"
    Parameters: ClassVar[type[Parameters]] = Parameters

    def __init__(
        self, answer: Allocation | Callable[[Snapshot], Allocation], elastic: bool = False, **gains: Any
    ) -> None:
        self.answer, self.capabilities = answer, Capabilities(Answer.COUNTS, elastic=elastic)
        self.parameters = Gains(**gains)
        self.seen: list[Snapshot] = []

    def allocate(self, snapshot: Snapshot) -> Allocation:
        self.seen.append(snapshot)
        return self.answer(snapshot) if callable(self.answer) else self.answer


def plan_round(snapshot: Snapshot, policy: Any) -> Plan:
    return rounds.plan_round(snapshot, policy)


def counts(given: Mapping[Job, int] | list[tuple[Job, int]], **more: Any) -> Allocation:
    pairs = given.items() if isinstance(given, Mapping) else given
    return Allocation(counts={job.id: Gang(GPU, count) for job, count in pairs}, **more)


def placed(pairs: list[tuple[Job, tuple[int, ...]]], **more: Any) -> Allocation:
    return Allocation(placements={job.id: gpus for job, gpus in pairs}, **more)


def moved(plan: Plan) -> dict[str, tuple[int, ...]]:
    return {move.job_id: move.gpu_ids for move in plan.moves}


# Answers in counts -----------------------------------------------------------------------------------------


def test_what_an_answer_says_is_laid_out() -> None:
    keeps, shrinks, goes = make_job(holds=(0, 1)), make_job(holds=(2, 3)), make_job(holds=(4, 5))
    starts, none = make_job(gpus=3), make_job(gpus=1)
    answer = counts([(keeps, 2), (shrinks, 1), (starts, 3), (none, 0)], memory={"k": 1}, figures={"f": 2.0})
    plan = plan_round(make_snapshot(keeps, shrinks, goes, starts, none), Answering(answer))
    assert moved(plan) == {shrinks.id: (2,), goes.id: (), starts.id: (3, 4, 5)}
    assert (plan.memory, plan.figures, plan.rejected) == ({"k": 1}, {"f": 2.0}, None)
    kinds = {move.job_id: move.kind for move in plan.moves}
    assert kinds == {shrinks.id: "rescale", goes.id: "preempt", starts.id: "start"}


def test_a_gang_that_does_not_fit_is_laid_out_smaller_down_to_what_it_trains_on() -> None:
    small = make_job(min_gpus=1, max_gpus=4)
    large = make_job(min_gpus=1, max_gpus=4, curve=make_curve(0.0, 0.0, 1.0, 2.0))
    plan = plan_round(make_snapshot(small, nodes=2), Answering(counts([(small, 4)])))
    assert plan.moves[0].gang == Gang(GPU, 2)
    assert moved(plan) == {small.id: (0, 1)}
    assert plan_round(make_snapshot(large, nodes=2), Answering(counts([(large, 4)]))).moves == ()


def test_gpus_of_those_that_stay_and_of_processes_on_their_way_out_are_no_other_job_s() -> None:
    fixed = make_job(holds=(0,), state=State.LAUNCHING)
    keeps, starts = make_job(holds=(1,)), make_job(gpus=1)
    snapshot = make_snapshot(fixed, keeps, starts, nodes=4, blocked_gpu_ids=frozenset({2}))
    assert moved(plan_round(snapshot, Answering(counts([(keeps, 1), (starts, 1)])))) == {starts.id: (3,)}
    two = replace(starts, min_gpus=2, max_gpus=2)
    crowded = replace(snapshot, jobs=(fixed, keeps, two))
    plan = plan_round(crowded, Answering(counts([(keeps, 1), (two, 2)])))
    assert plan.moves == ()
    assert plan.reasons[two.id].token == "no_layout"


def test_a_job_that_is_given_another_type_leaves_all_that_it_has() -> None:
    nodes = (*make_nodes(2, type="a"), *make_nodes(2, type="b", first_id=10))
    job = make_job(holds=(0, 1), type="a", curves={"a": make_curve(), "b": make_curve()})
    answer = Allocation(counts={job.id: Gang("b", 2)})
    assert moved(plan_round(make_snapshot(job, nodes=nodes), Answering(answer))) == {job.id: (10, 11)}
    smaller = Allocation(counts={job.id: Gang("b", 1)})
    assert moved(plan_round(make_snapshot(job, nodes=nodes), Answering(smaller))) == {job.id: (10,)}


def test_an_answer_beyond_a_limit_is_cut_down() -> None:
    limits = {"l": Limit("gpus", 3, level="project Speech")}
    runs = make_job(holds=(0, 1), limits=("l",))
    starts, other = make_job(gpus=2, limits=("l",)), make_job(gpus=2)
    answer = counts([(runs, 2), (starts, 2), (other, 2)], reasons={other.id: Reason("mine", "x")})
    plan = plan_round(make_snapshot(runs, starts, other, limits=limits), Answering(answer))
    assert moved(plan) == {other.id: (2, 3)}
    assert (plan.reasons[starts.id].token, plan.reasons[other.id].token) == ("quota", "mine")
    roomy = {"l": Limit("gpus", 4, level="project Speech")}
    plan = plan_round(make_snapshot(runs, starts, other, limits=roomy), Answering(answer))
    assert moved(plan).keys() == {starts.id, other.id}


# Answers in placements -------------------------------------------------------------------------------------


def test_named_accelerators_are_given_as_they_are_named() -> None:
    runs, starts = make_job(holds=(0,)), make_job(gpus=2)
    plan = plan_round(make_snapshot(runs, starts), Answering(placed([(runs, (0,)), (starts, (5, 3))])))
    assert moved(plan) == {starts.id: (5, 3)}
    assert plan.moves[0].gang == Gang(GPU, 2)


@pytest.mark.parametrize(
    ("gpus", "valid"),
    [
        ((2,), True),
        ((0,), False),
        ((1,), False),
        ((2, 2), False),
        ((9,), False),
        ((5,), False),
        ((4,), False),
        ((), True),
    ],
)
def test_what_is_named_must_be_free_in_service_and_named_once(gpus: tuple[int, ...], valid: bool) -> None:
    runs, fixed = make_job(holds=(0,)), make_job(holds=(1,), held=True)
    starts = make_job(min_gpus=1)
    nodes = (*make_nodes(5), Node("old", GPU, (5,), schedulable=False))
    snapshot = make_snapshot(runs, fixed, starts, nodes=nodes, blocked_gpu_ids=frozenset({4}))
    plan = plan_round(snapshot, Answering(placed([(runs, (0,)), (starts, gpus)])))
    assert ("solver_failed" in plan.figures) == (not valid)
    assert moved(plan) == ({starts.id: gpus} if gpus and valid else {} if valid else {starts.id: (2,)})


def test_what_is_named_for_those_that_take_no_part_is_of_no_concern() -> None:
    fixed, starts = make_job(holds=(1,), held=True), make_job(gpus=1)
    answer = placed([(fixed, (3,)), (starts, (2,))])
    plan = plan_round(make_snapshot(fixed, starts), Answering(answer))
    assert (moved(plan), plan.figures) == ({starts.id: (2,)}, {})


@pytest.mark.parametrize(("most", "valid"), [(1, False), (2, True)])
def test_what_is_named_beyond_a_limit_is_a_failed_solver(most: int, valid: bool) -> None:
    limits = {"l": Limit("gpus", most, level="project Speech")}
    jobs = [make_job(gpus=1, limits=("l",)) for _ in range(2)]
    answer = placed([(job, (n,)) for n, job in enumerate(jobs)])
    plan = plan_round(make_snapshot(*jobs, limits=limits), Answering(answer))
    assert ("solver_failed" in plan.figures) == (not valid)
    assert len(plan.moves) == most


def test_an_answer_in_fractions_from_a_policy_of_counts_is_a_failed_solver() -> None:
    job = make_job(gpus=1)
    plan = plan_round(make_snapshot(job), Answering(Allocation(shares={(job.id,): {GPU: 1.0}})))
    assert plan.figures == {"solver_failed": 1.0}
    assert moved(plan) == {job.id: (0,)}


# Who is put out --------------------------------------------------------------------------------------------


def test_a_job_that_is_preempted_though_it_is_not_resized_is_planned_without() -> None:
    fixed = make_job(holds=(0, 1), resizable=False)
    keeps = make_job(holds=(2,), resizable=False)
    starts = make_job(gpus=2)

    def answer(snapshot: Snapshot) -> Allocation:
        there = {job.id for job in snapshot.jobs}
        reasons = (
            {fixed.id: Reason(ReasonCode.PREEMPTED, "Put out."), keeps.id: Reason("other", "x")}
            if fixed.id in there
            else {}
        )
        given = {starts.id: Gang(GPU, 2)} if fixed.id not in there else {}
        return Allocation(counts=given, reasons=reasons)

    policy = Answering(answer)
    plan = plan_round(make_snapshot(fixed, keeps, starts, nodes=3), policy)
    assert moved(plan) == {fixed.id: (), starts.id: (0, 1)}
    assert plan.reasons[fixed.id].token == ReasonCode.PREEMPTED
    assert len(policy.seen) == 2


def test_who_can_be_resized_is_not_planned_without() -> None:
    runs = make_job(holds=(0, 1))
    policy = Answering(Allocation(counts={}, reasons={runs.id: Reason(ReasonCode.PREEMPTED, "Put out.")}))
    plan = plan_round(make_snapshot(runs), policy)
    assert (moved(plan), len(policy.seen)) == ({runs.id: ()}, 1)


# On nodes that are drained ---------------------------------------------------------------------------------


def test_who_finds_no_other_place_stays_on_a_drained_node_and_the_rest_is_planned_around_it() -> None:
    old = Node("old", GPU, (10, 11), schedulable=False)
    first, second = make_job(gpus=2, holds=(10,)), make_job(gpus=1, holds=(11,))
    first = replace(first, min_gpus=1, max_gpus=1)
    policy = Answering(
        lambda snapshot: Allocation(counts={view(snapshot).queued[0].id: ONE} if view(snapshot).queued else {})
    )
    plan = plan_round(make_snapshot(first, second, nodes=(*make_nodes(1), old)), policy)
    assert moved(plan) == {first.id: (0,)}
    assert plan.reasons[second.id].token == "node_drained_waits"


def test_where_the_solver_fails_who_has_room_elsewhere_leaves_a_drained_node() -> None:
    old = Node("old", GPU, (10,), schedulable=False)
    job = make_job(gpus=1, holds=(10,))

    def fails(_: Snapshot) -> Allocation:
        raise SolverError("kTimeLimit")

    plan = plan_round(make_snapshot(job, nodes=(*make_nodes(1), old)), Answering(fails))
    assert (moved(plan), plan.figures) == ({job.id: (0,)}, {"solver_failed": 1.0})


def test_who_has_to_leave_is_told_so_and_not_what_keeps_it_from_starting_again() -> None:
    nodes = (*make_nodes(2, cpu_milli=1_000), Node("gone", GPU, (10,), schedulable=False, lost=True))
    whole = make_job(gpus=1, holds=(10,), cpu_milli=2_000)
    waits = make_job(gpus=1, cpu_milli=2_000)
    plan = plan_round(make_snapshot(whole, waits, nodes=nodes), load_policy("fifo_gang"))
    assert moved(plan) == {whole.id: ()}
    assert (plan.reasons[whole.id].token, plan.reasons[waits.id].token) == ("node_lost", "node_unavailable")
    part = make_job(gpus=1, holds=(10,), gpu_milli=500, curve=Curve((1.0,)))
    beside = make_job(gpus=2, holds=(0, 1))
    plan = plan_round(make_snapshot(part, beside, nodes=nodes), load_policy("fifo_gang"))
    assert moved(plan) == {part.id: ()}
    assert plan.reasons[part.id].token == "node_lost"


# Whether it is worth it ------------------------------------------------------------------------------------


def grows(*speeds: float, **changes: Any) -> Job:
    """It runs on one GPU and is to get another."""
    values: dict[str, Any] = {"holds": (0,), "curve": Curve(speeds or (1.0, 2.0)), "max_gpus": 2}
    return make_job(**values | changes)


@pytest.mark.parametrize(
    ("gains", "applied"),
    [
        ({"min_gain": 0.5}, True),
        ({"min_gain": 1.0}, True),
        ({"min_gain": 1.01}, False),
        ({"min_gain": 0.0}, True),
        ({"min_gain": 0.5, "min_gain_kind": "relative"}, True),
        ({"min_gain": 0.51, "min_gain_kind": "relative"}, False),
    ],
)
def test_a_change_is_applied_from_exactly_the_least_gain(gains: dict[str, Any], applied: bool) -> None:
    job = grows(2.0, 3.0)
    plan = plan_round(make_snapshot(job), Answering(counts([(job, 2)]), elastic=True, **gains))
    assert moved(plan) == ({job.id: (0, 1)} if applied else {})
    assert (plan.rejected is None) == applied
    rigid = Answering(counts([(job, 2)]), elastic=False, **gains)
    assert moved(plan_round(make_snapshot(job), rigid)) == {job.id: (0, 1)}


@pytest.mark.parametrize(("speedup", "applied"), [(1.0, True), (2.0, True), (2.1, False)])
def test_an_emulated_speed_up_raises_an_absolute_least_gain_only(speedup: float, applied: bool) -> None:
    job = grows(2.0, 4.0)
    snapshot = make_snapshot(job, settings={"speedup": speedup})
    assert bool(plan_round(snapshot, Answering(counts([(job, 2)]), elastic=True, min_gain=1.0)).moves) == applied
    relative = Answering(counts([(job, 2)]), elastic=True, min_gain=1.0, min_gain_kind="relative")
    assert plan_round(snapshot, relative).moves


def test_a_plan_that_starts_a_job_is_always_applied_and_one_that_changes_nothing_is_not_refused() -> None:
    job, waits = grows(), make_job(gpus=1)
    dear: dict[str, Any] = {"elastic": True, "min_gain": 99.0}
    plan = plan_round(make_snapshot(job, waits), Answering(counts([(job, 2), (waits, 1)]), **dear))
    assert moved(plan).keys() == {job.id, waits.id}
    plan = plan_round(make_snapshot(job, waits), Answering(counts([(job, 2)]), **dear))
    assert (moved(plan), plan.reasons[job.id].token) == ({}, "min_gain")
    plan = plan_round(make_snapshot(job, waits), Answering(counts([(job, 1)]), **dear))
    assert (moved(plan), plan.rejected) == ({}, None)


def test_the_gain_is_over_those_that_survive() -> None:
    """One leaves, another gains 1: what the first made is no loss."""
    gains, leaves = grows(), make_job(holds=(1,), curve=Curve((5.0,)))
    policy = Answering(counts([(gains, 2)]), elastic=True, min_gain=1.0)
    assert moved(plan_round(make_snapshot(gains, leaves, nodes=2), policy)) == {gains.id: (0, 1), leaves.id: ()}
    loses = make_job(holds=(1, 2), curve=Curve((1.0, 3.0)))
    answer = counts([(gains, 2), (loses, 1)])  # + 1 - 2
    plan = plan_round(make_snapshot(gains, loses), Answering(answer, elastic=True, min_gain=0.0))
    assert plan.moves == ()
    assert plan.reasons[gains.id].detail == {"gain": -1.0, "min_gain": 0.0}
    assert plan.reasons[loses.id].token == "min_gain"


@pytest.mark.parametrize(
    ("restart_cost_s", "next_event_s", "applied"),
    [
        (49.0, 100.0, True),  # gains 100 steps, loses 98
        (50.0, 100.0, False),
        (51.0, 100.0, False),
        (0.0, 0.0, False),
        (249.0, None, True),  # its own end is 500 s away
        (250.0, None, False),
    ],
)
def test_what_is_gained_until_the_next_event_must_be_more_than_restarts_lose(
    restart_cost_s: float, next_event_s: float | None, applied: bool
) -> None:
    job = grows(restart_cost_s=restart_cost_s, remaining_steps=500.0)
    idle = make_job(holds=(3,), curve=Curve((1.0,)), remaining_steps=700.0, max_gpus=1, restart_cost_s=1e4)
    policy = Answering(counts([(job, 2), (idle, 1)]), elastic=True, amortise=True, min_gain=99.0)
    plan = plan_round(make_snapshot(job, idle, next_event_s=next_event_s), policy)
    assert bool(plan.moves) == applied
    if not applied:
        seconds = 500.0 if next_event_s is None else next_event_s
        assert plan.reasons[job.id].detail == {"gained_steps": seconds, "lost_steps": 2 * restart_cost_s}
        assert f"gain {seconds:.0f} steps" in plan.reasons[job.id].text


def test_those_that_have_no_steps_left_end_at_no_time_that_counts() -> None:
    job = grows(restart_cost_s=10.0, remaining_steps=500.0)
    done = make_job(holds=(3,), curve=Curve((1.0,)), remaining_steps=0.0, max_gpus=1)
    policy = Answering(counts([(job, 2), (done, 1)]), elastic=True, amortise=True)
    assert plan_round(make_snapshot(job, done), policy).moves
    alone = grows(restart_cost_s=0.0, remaining_steps=0.0)
    policy = Answering(counts([(alone, 2)]), elastic=True, amortise=True)
    assert plan_round(make_snapshot(alone), policy).moves == ()


def test_where_a_plan_is_refused_everybody_keeps_what_they_have_and_no_job_starts() -> None:
    job, fixed, other = grows(), make_job(holds=(3,), held=True), make_job(holds=(4, 5))
    policy = Answering(counts([(job, 2), (other, 2)]), elastic=True, min_gain=9.0)
    plan = plan_round(make_snapshot(job, fixed, other), policy)
    assert plan.moves == ()
    assert plan.rejected == plan.reasons[job.id].text == plan.reasons[other.id].text
    assert plan.reasons[fixed.id].token == "held_running"


# Guarantees ------------------------------------------------------------------------------------------------


def test_claims_are_remembered_beside_what_the_policy_remembers_and_only_while_there_are_some() -> None:
    holds = make_job(holds=range(6), gpus=6, project="vision", state=State.RUNNING_PROTECTED, protected_until=9e9)
    waits = make_job(gpus=2)
    row = Guarantee("speech", 2)
    policy = Answering(Allocation(counts={}, memory={"mine": 1}))
    snapshot = make_snapshot(holds, waits, guarantees=(row,))
    assert plan_round(snapshot, policy).memory == {"mine": 1, CLAIMS: {waits.id: 1_000.0}}
    assert plan_round(replace(snapshot, guarantees=()), policy).memory == {"mine": 1}
    later = replace(snapshot, now=1_100.0, memory={CLAIMS: {waits.id: 1_000.0, "gone": 1.0}})
    assert plan_round(later, policy).memory[CLAIMS] == {waits.id: 1_000.0}


def test_what_a_job_has_on_a_drained_node_counts_of_its_guarantee_until_it_has_left() -> None:
    """It would do with one of its two, which would leave room for the other in a guarantee of three."""
    old = Node("old", GPU, (10, 11), schedulable=False)
    leaves = make_job(holds=(10, 11), min_gpus=1, max_gpus=2)
    borrows, waits = make_job(holds=(2, 3), gpus=2, project="vision"), make_job(gpus=2)
    policy = Answering(counts([(leaves, 2), (borrows, 2)]))
    jobs = leaves, borrows, waits
    plan = plan_round(make_snapshot(*jobs, nodes=(*make_nodes(4), old), guarantees=(Guarantee("speech", 3),)), policy)
    assert (moved(plan), plan.memory) == ({leaves.id: (0, 1)}, {})


def test_a_job_that_is_given_accelerators_by_name_claims_nothing() -> None:
    waits = make_job(gpus=2)
    for answer in (placed([(waits, (0, 1))]), counts([(waits, 2)])):
        plan = plan_round(make_snapshot(waits, guarantees=(Guarantee("speech", 2),)), Answering(answer))
        assert (moved(plan), plan.memory) == ({waits.id: (0, 1)}, {})


def test_who_starts_on_what_it_is_guaranteed_does_so_though_the_plan_is_refused() -> None:
    gains = make_job(holds=(0,), curve=Curve((1.0, 1.1)), max_gpus=2, project="vision")
    holds = make_job(holds=(2, 3, 4, 5), gpus=4, project="vision")
    own = make_job(gpus=2)

    def answer(snapshot: Snapshot) -> Allocation:
        stays = {job.id: job.gang for job in view(snapshot).running if job.gang}
        return Allocation(counts=stays | {gains.id: Gang(GPU, 2)})

    policy = Answering(answer, elastic=True, min_gain=9.0)
    plan = plan_round(make_snapshot(gains, holds, own, guarantees=(Guarantee("speech", 2),)), policy)
    assert moved(plan).get(own.id) is not None
    assert gains.id not in moved(plan)
    assert plan.rejected is not None


def test_a_level_of_service_that_is_preempted_is_told_which() -> None:
    levels = {"low": Qos(0), "high": Qos(9, ("low",))}
    low = make_job(gpus=2, holds=(0, 1), qos="low", resizable=False)
    high = make_job(gpus=2, qos="high")
    plan = plan_round(make_snapshot(low, high, nodes=2, qos=levels), load_policy("multifactor"))
    assert moved(plan) == {low.id: (), high.id: (0, 1)}
    assert plan.reasons[low.id].token == ReasonCode.PREEMPTED


# Limits at the end -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("most", "refused"), [(1, True), (2, False)])
def test_a_layout_beyond_a_limit_moves_no_job(most: int, refused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "enforce_quota", lambda state: state)
    limits = {"l": Limit("gpus", most, level="project Speech")}
    job, other = make_job(gpus=2, limits=("l",)), make_job(gpus=1)
    plan = plan_round(make_snapshot(job, other, limits=limits), Answering(counts([(job, 2), (other, 1)])))
    assert (moved(plan) == {}) == refused
    assert (plan.rejected is not None) == refused
