"""Rounds that realise fractions of time, driven as the live engine drives them: plan, apply, let time pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduling.domain import Allocation, Curve, Job, Limit, Plan, Snapshot
from scheduling.engine.rounds import plan_round
from scheduling.errors import SolverError
from scheduling.lifecycle import State
from scheduling.policies import load_policy
from scheduling.policies.base import Policy
from scheduling.policies.time_shares.max_min_fairness import MaxMinFairness
from tests.builders import make_curve, make_job, make_nodes, make_snapshot

ROUND_S = 100.0


class Cluster:
    """A snapshot that goes on: moves are applied at once, launches take no time."""

    def __init__(self, *jobs: Job, policy: Policy | None = None, **nodes: int) -> None:
        fleet = [
            n for i, (kind, size) in enumerate(nodes.items()) for n in make_nodes(size, type=kind, first_id=100 * i)
        ]
        self.policy = policy or load_policy("max_min_fairness", {"round_seconds": ROUND_S})
        self.snapshot = make_snapshot(*jobs, nodes=fleet)
        self.had: dict[str, Counter[str]] = {job.id: Counter() for job in jobs}
        self.restarts = Counter[str]()

    def step(self) -> Plan:
        plan = plan_round(self.snapshot, self.policy)
        jobs = {job.id: job for job in self.snapshot.jobs}
        for move in plan.moves:
            state = State.RUNNING if move.gpu_ids else State.WAITING_FOR_RESOURCE
            jobs[move.job_id] = replace(jobs[move.job_id], state=state, gpu_ids=move.gpu_ids, gang=move.gang)
            self.restarts[move.job_id] += 1
        self.snapshot = replace(self.snapshot, jobs=tuple(jobs.values()), memory=plan.memory)
        return plan

    def wait(self, seconds: float) -> None:
        for job in self.snapshot.jobs:
            if job.gang:
                self.had[job.id][job.gang.type] += seconds  # type: ignore[assignment]
        self.snapshot = replace(self.snapshot, now=self.snapshot.now + seconds)

    def arrive(self, job: Job) -> None:
        self.snapshot = replace(self.snapshot, jobs=(*self.snapshot.jobs, job))
        self.had[job.id] = Counter()

    def rounds(self, count: int) -> None:
        """Until so many rounds have ended; a plan that takes GPUs away asks to be called again at once."""
        for _ in range(count):
            end = 0.0
            while end <= self.snapshot.now:
                wake_at = self.step().next_wake_at
                assert wake_at is not None
                end = self.snapshot.memory["time_sharing"]["round_end"] if wake_at > self.snapshot.now else 0.0
            self.wait(end - self.snapshot.now)

    def holds(self, job: Job) -> tuple[int, ...]:
        return next(j.gpu_ids for j in self.snapshot.jobs if j.id == job.id)


def jobs_of(count: int, **speeds: float) -> list[Job]:
    curves = {kind: Curve((value,)) for kind, value in speeds.items()}
    return [make_job(number=n + 1, curves=curves, submitted_at=0.0) for n in range(count)]


def test_two_jobs_take_turns_on_one_gpu() -> None:
    one, two = jobs_of(2, a=1.0)
    cluster = Cluster(one, two, a=1)
    cluster.rounds(6)
    assert cluster.had[one.id]["a"] == cluster.had[two.id]["a"] == 3 * ROUND_S
    assert cluster.restarts[one.id] + cluster.restarts[two.id] == 11  # a start, and five times one leaves, one comes


def test_a_job_keeps_its_gpus_from_round_to_round_where_no_other_job_wants_them() -> None:
    one, two = jobs_of(2, a=1.0)
    cluster = Cluster(one, two, a=2)
    cluster.rounds(5)
    assert cluster.restarts == {one.id: 1, two.id: 1}


def test_an_arrival_waits_for_the_round_s_end_unless_gpus_are_idle() -> None:
    one, two = jobs_of(2, a=1.0)
    cluster = Cluster(one, a=1)
    cluster.step()
    cluster.wait(ROUND_S / 2)
    cluster.arrive(two)
    plan = cluster.step()
    assert plan.moves == ()
    assert plan.reasons[two.id].token == "next_round"
    cluster.wait(ROUND_S / 2)
    cluster.step()
    assert (cluster.holds(one), cluster.holds(two)) == ((), (0,))


def test_an_arrival_starts_at_once_on_an_idle_gpu() -> None:
    one, two = jobs_of(2, a=1.0)
    cluster = Cluster(one, a=2)
    cluster.step()
    cluster.wait(ROUND_S / 2)
    cluster.arrive(two)
    cluster.step()
    assert cluster.holds(two) == (1,)


def test_a_gang_gets_all_of_its_gpus_or_none() -> None:
    big = make_job(number=1, min_gpus=3, curves={"a": Curve((0.0, 0.0, 3.0))}, submitted_at=0.0)
    small = jobs_of(4, a=1.0)[1:]
    cluster = Cluster(big, *small, a=4)
    for _ in range(8):
        cluster.rounds(1)
        assert len(cluster.holds(big)) in (0, 3)
    assert cluster.had[big.id]["a"] > 0


def test_gpus_that_the_fractions_leave_over_go_to_a_job_that_waits() -> None:
    """Throughput alone gives the fast job both types' best; the slow one still gets what is idle."""
    fast, slow = make_job(number=1, curves={"a": Curve((9.0,))}), make_job(number=2, curves={"b": Curve((1.0,))})
    cluster = Cluster(fast, slow, policy=load_policy("min_cost"), a=1, b=1)
    cluster.step()
    assert cluster.holds(slow) == ()
    cluster = Cluster(fast, slow, policy=load_policy("max_sum_throughput"), a=1, b=1)
    cluster.step()
    assert cluster.holds(slow) != ()


@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_time_had_stays_close_to_what_was_promised(data: st.DataObject) -> None:
    """Single-GPU jobs, as many as GPUs or more: nobody is ever two rounds behind."""
    count = data.draw(st.integers(2, 6))
    speeds = st.sampled_from([1.0, 2.0, 5.0])
    jobs = [
        make_job(
            number=n + 1, submitted_at=0.0, curves={"a": Curve((data.draw(speeds),)), "b": Curve((data.draw(speeds),))}
        )
        for n in range(count)
    ]
    policy = load_policy("max_min_fairness", {"round_seconds": ROUND_S, "recompute_seconds": 86_400})
    cluster = Cluster(*jobs, policy=policy, a=1, b=1)
    promised = policy.allocate(cluster.snapshot).shares or {}
    rounds = 40
    cluster.rounds(rounds)
    for job in jobs:
        due_s = sum(promised.get((job.id,), {}).values()) * rounds * ROUND_S
        assert sum(cluster.had[job.id].values()) >= due_s - 2 * ROUND_S


class Failing(MaxMinFairness):
    """Fails when there are three jobs."""

    def allocate(self, snapshot: Snapshot) -> Allocation:
        if len(snapshot.jobs) == 3:
            raise SolverError("kTimeLimit")
        return super().allocate(snapshot)


def test_a_failed_solver_leaves_the_last_valid_fractions_in_force() -> None:
    one, two, three = jobs_of(3, a=1.0)
    settings: Any = {"round_seconds": ROUND_S}
    cluster = Cluster(one, two, policy=Failing(MaxMinFairness.Parameters(**settings)), a=1)
    cluster.rounds(1)
    cluster.step()
    cluster.wait(ROUND_S / 2)
    cluster.arrive(three)
    assert cluster.step().moves == ()
    assert cluster.holds(two) == (0,)
    cluster.wait(ROUND_S / 2)
    plan = cluster.step()
    assert plan.figures["solver_failed"] == 1.0
    assert "kTimeLimit" in plan.reasons[three.id].text
    assert cluster.holds(one) == (0,)


def test_a_job_keeps_its_gpus_until_its_restart_has_paid_off() -> None:
    """A restart of 8 s in rounds of 100 s: at most 2.5 % of the time is after four rounds."""
    one, two = jobs_of(2, a=1.0)
    cluster = Cluster(replace(one, restart_cost_s=8.0), replace(two, restart_cost_s=8.0), a=1)
    cluster.rounds(16)
    assert cluster.had[one.id]["a"] == cluster.had[two.id]["a"] == 8 * ROUND_S
    assert cluster.restarts[one.id] + cluster.restarts[two.id] == 7


def test_what_is_remembered_is_plain_and_goes_with_the_policy() -> None:
    one, two = jobs_of(2, a=1.0)
    cluster = Cluster(one, two, a=1)
    cluster.rounds(1)
    before = dict(cluster.snapshot.memory)
    cluster.policy = load_policy("isolated", {"round_seconds": ROUND_S})
    cluster.rounds(1)
    assert before.keys() == cluster.snapshot.memory.keys()
    assert before["time_sharing"]["signature"] != cluster.snapshot.memory["time_sharing"]["signature"]


def test_a_job_that_is_promised_nothing_more_is_moved_whatever_its_restart_cost() -> None:
    long, short = (replace(job, restart_cost_s=80.0) for job in jobs_of(2, a=1.0))
    policy = load_policy("shortest_job_first", {"round_seconds": ROUND_S})
    cluster = Cluster(replace(long, remaining_steps=1e6), policy=policy, a=1)
    cluster.step()
    cluster.arrive(replace(short, remaining_steps=100.0))
    cluster.wait(ROUND_S)
    cluster.step()
    assert (cluster.holds(long), cluster.holds(short)) == ((), (0,))


def test_who_may_queue_again_is_given_its_fraction_at_the_round_s_end() -> None:
    one, two = jobs_of(2, a=1.0)
    cluster = Cluster(one, replace(two, not_before=1_000.0 + ROUND_S / 2), a=1)
    cluster.rounds(1)
    plan = cluster.step()
    assert plan.reasons[two.id].detail["share"] == pytest.approx(0.5)


def test_fractions_are_computed_within_a_round_where_several_wait_for_idle_gpus() -> None:
    running, *rest = jobs_of(4, a=1.0)
    cluster = Cluster(running, policy=Recorded({"round_seconds": ROUND_S}), a=2)
    cluster.step()
    cluster.wait(ROUND_S / 4)
    cluster.arrive(rest[0])
    cluster.step()
    assert (Recorded.computed, cluster.holds(rest[0])) == (1, (1,))
    cluster.snapshot = replace(cluster.snapshot, jobs=cluster.snapshot.jobs[1:])
    cluster.arrive(rest[1])
    cluster.arrive(rest[2])
    cluster.step()
    assert (Recorded.computed, cluster.holds(rest[1])) == (2, (0,))


class Recorded(MaxMinFairness):
    computed = 0

    def allocate(self, snapshot: Snapshot) -> Allocation:
        type(self).computed += 1
        return super().allocate(snapshot)


def pairs_of_shares(job: Job) -> Any:
    return [[[job.id], {"a": 1.0}]]


def shares_by_job(job: Job) -> Any:
    return {job.id: {"a": 1.0}}


@pytest.mark.parametrize(
    ("shares", "kept"), [(pairs_of_shares, {}), (shares_by_job, {"had": {}, "began": {}, "reasons": {}, "figures": {}})]
)
def test_memory_of_an_earlier_release_is_no_obstacle(shares: Callable[[Job], Any], kept: dict[str, Any]) -> None:
    (one,) = jobs_of(1, a=1.0)
    cluster = Cluster(one, a=1)
    old = {"signature": "", "computed_at": 0.0, "round_end": 9e9, "at": 0.0, **kept}
    cluster.snapshot = replace(cluster.snapshot, memory={"time_sharing": {**old, "shares": shares(one)}})
    cluster.step()
    assert cluster.holds(one) == (0,)


@pytest.mark.parametrize("count", [1, 3])
def test_an_idle_cluster_asks_for_no_wake_up(count: int) -> None:
    assert Cluster(a=count).step().next_wake_at is None


def test_a_job_that_does_not_train_on_its_minimum_gets_the_least_on_which_it_does() -> None:
    needs_two = make_job(curve=make_curve(0.0, 1.5, 2.0), max_gpus=3)
    plan = plan_round(make_snapshot(needs_two, make_job(max_gpus=1), nodes=4), load_policy("max_min_fairness"))
    assert sorted(len(move.gpu_ids) for move in plan.moves) == [1, 2]


def test_a_job_that_is_kept_back_by_a_limit_takes_no_time_from_others() -> None:
    """Its least gang is larger than its minimum, which is looked at only of those that take part."""
    one, other = jobs_of(2, a=1.0)
    barred = make_job(curves={"a": make_curve(0.0, 2.0)}, limits=("budget",))
    limits = {"budget": Limit("spent", text="The budget is used up.")}
    snapshot = make_snapshot(one, other, barred, nodes=make_nodes(2, type="a"), limits=limits)
    plan = plan_round(snapshot, load_policy("max_min_fairness", {"round_seconds": ROUND_S}))
    assert plan.reasons[barred.id].token == "quota_period"
    assert plan.figures["objective"] == pytest.approx(1.0)


def test_a_solver_that_fails_once_all_who_had_a_share_are_gone_keeps_the_rounds_going() -> None:
    first, *later = jobs_of(4, a=1.0)
    cluster = Cluster(
        first, a=1, policy=Failing(load_policy("max_min_fairness", {"round_seconds": ROUND_S}).parameters)
    )
    cluster.step()
    now = cluster.snapshot.now + ROUND_S
    cluster.snapshot = replace(cluster.snapshot, jobs=tuple(later), now=now)
    cluster.had |= {job.id: Counter() for job in later}
    plan = cluster.step()
    assert [move.gpu_ids for move in plan.moves] == [(0,)]
    assert (plan.figures["solver_failed"], plan.next_wake_at) == (1.0, now + ROUND_S)


def test_leases_go_on_over_a_release_with_other_books() -> None:
    held = make_job(curves={"a": Curve((1.0,))}, holds=[0], type="a", restart_cost_s=50.0)
    waits = make_job(curves={"a": Curve((1.0,))})
    snapshot = make_snapshot(held, waits, nodes=make_nodes(1, type="a"))
    old = {"began": {held.id: snapshot.now - 1.0}, "shares": {held.id: {"a": 1.0}}, "had": {}, "round_end": 9e9}
    policy = load_policy("max_min_fairness", {"round_seconds": ROUND_S})
    assert plan_round(replace(snapshot, memory={"time_sharing": old}), policy).moves == ()


def test_no_job_is_given_fewer_gpus_than_it_trains_on_for_a_promise_that_nodes_were_lost_since() -> None:
    """On one GPU it makes no step. It was promised two, and since then those that have two are gone."""
    needs_two = Curve((0.0, 1.0))
    job = make_job(curves={"a": needs_two, "b": needs_two}, max_gpus=2)
    other = make_job(curves={"a": needs_two}, max_gpus=2)
    nodes = (*make_nodes(2, type="a"), *make_nodes(1, 1, type="b", first_id=10))
    policy = load_policy("max_min_fairness", {"round_seconds": ROUND_S})
    for multi_node in (False, True):
        snapshot = make_snapshot(job, other, nodes=nodes, settings={"multi_node": multi_node})
        memory = plan_round(snapshot, policy).memory
        left = tuple(replace(node, lost=node.type == "a", schedulable=node.type != "a") for node in nodes[:2])
        later = replace(snapshot, nodes=left, memory=memory, now=snapshot.now + 1.0)
        assert plan_round(later, policy).moves == ()


def test_no_time_is_promised_on_gangs_that_span_nodes_where_none_may() -> None:
    job = make_job(curves={"a": Curve((0.0, 1.0)), "b": Curve((0.0, 5.0))}, gpus=2)
    nodes = (*make_nodes(2, type="a"), *make_nodes(1, 1, type="b", first_id=10))
    for multi_node, kind in ((False, "a"), (True, "b")):
        snapshot = make_snapshot(job, nodes=nodes, settings={"multi_node": multi_node})
        (move,) = plan_round(snapshot, load_policy("max_sum_throughput", {"round_seconds": ROUND_S})).moves
        assert move.gang is not None
        assert move.gang.type == kind
