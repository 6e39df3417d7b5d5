"""What every policy promises, whatever it optimises; every name in POLICIES is held to it."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scheduling.capacity.cluster_view import view
from scheduling.domain import Allocation, Gang, Plan, Snapshot
from scheduling.engine.rounds import plan_round
from scheduling.lifecycle import LOCKED, QUEUED, State
from scheduling.policies import POLICIES, load_policy, policy_class
from scheduling.policies.base import Parameters, Policy
from scheduling.policies.capabilities import Answer, Capabilities
from tests.builders import make_job, make_snapshot
from tests.cases import in_turn
from tests.scheduling.strategies import COUNTING, snapshots

EXAMPLES = 25
TIMED = sorted(name for name in POLICIES if policy_class(name).capabilities.shares_time)
KEEPING = [name for name in COUNTING if not policy_class(name).capabilities.preempts]
counting_policy = pytest.mark.parametrize("name", COUNTING)
timed_policy = pytest.mark.parametrize("name", TIMED)
every_policy = pytest.mark.parametrize("name", sorted(POLICIES))
quickly = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def load(name: str) -> Policy:
    return load_policy(name, {"n": 2} if name == "static_partition" else {})


@counting_policy
@quickly
@given(snapshot=snapshots(whole_nodes=True))
def test_allocations_are_allowed(name: str, snapshot: Snapshot) -> None:
    counts = load(name).allocate(snapshot).counts
    assert counts is not None
    _capacity_and_limits_are_kept(snapshot, counts)
    _who_runs_or_is_locked_stays(name, snapshot, counts)


def _capacity_and_limits_are_kept(snapshot: Snapshot, counts: Mapping[str, Gang]) -> None:
    jobs = {job.id: job for job in snapshot.jobs}
    used = Counter[str]()
    for key, gang in counts.items():
        used[gang.type] += gang.count
        job = jobs[key]
        if job.state in LOCKED or not job.restartable:
            assert gang == job.gang
        elif gang != job.gang:
            assert job.min_gpus <= gang.count <= (job.max_gpus or gang.count)
            assert not job.types or gang.type in job.types
    for kind, count in used.items():
        assert count <= sum(len(node.gpu_ids) for node in snapshot.nodes if node.type == kind)


def _who_runs_or_is_locked_stays(name: str, snapshot: Snapshot, counts: Mapping[str, Gang]) -> None:
    """Of those that run only a policy that says that it preempts may leave some out."""
    fixed = {job.id for job in view(snapshot).pinned}
    for job in snapshot.jobs:
        if job.gpu_ids and (name in KEEPING or job.id in fixed):
            assert job.id in counts


@pytest.mark.parametrize("name", [name for name in TIMED if not policy_class(name).capabilities.time_dependent])
@quickly
@given(snapshot=snapshots(), later_s=st.floats(0, 1e6), part=st.floats(0, 1))
def test_fractions_that_do_not_age_are_the_same_at_any_time(
    name: str, snapshot: Snapshot, later_s: float, part: float
) -> None:
    """Whoever waits for another attempt apart: that ends with time."""
    jobs = [job for job in snapshot.jobs if job.not_before is None]
    further = [replace(job, remaining_steps=part * job.remaining_steps, done_steps=later_s) for job in jobs]
    early, late = replace(snapshot, jobs=tuple(jobs)), replace(snapshot, now=snapshot.now + later_s)
    first, second = (load(name).allocate(seen).shares for seen in (early, replace(late, jobs=tuple(further))))
    assert first == second


@timed_policy
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(variant=st.sampled_from(["agnostic", "perf", "packed"]), snapshot=snapshots(whole_nodes=True))
def test_fractions_of_time_are_valid(name: str, variant: str, snapshot: Snapshot) -> None:
    policy = load_policy(name, {"variant": variant})
    shares = policy.allocate(with_pairs(snapshot)).shares
    assert shares is not None
    jobs = {job.id: job for job in snapshot.jobs}
    time, gpus = defaultdict[str, float](float), defaultdict[str, float](float)
    for combination, by_type in shares.items():
        assert len({jobs[key].min_gpus for key in combination}) == 1
        assert variant == "packed" or len(combination) == 1 or name == "gandiva"
        for kind, share in by_type.items():
            assert share >= 0
            gpus[kind] += share * jobs[combination[0]].min_gpus
            for key in combination:
                time[key] += share
                assert not jobs[key].types or kind in jobs[key].types
    assert all(value <= 1 + 1e-7 for value in time.values())
    for kind, value in gpus.items():
        assert value <= sum(len(node.gpu_ids) for node in snapshot.nodes if node.type == kind) + 1e-7


@timed_policy
@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(snapshot=snapshots(whole_nodes=True))
def test_both_engines_find_the_same_optimum(name: str, snapshot: Snapshot) -> None:
    highs, cbc = (load_policy(name, {"solver": solver}).allocate(snapshot).figures for solver in ("highs", "cbc"))
    assert highs.keys() == cbc.keys()
    assert highs.get("objective", 0.0) == pytest.approx(cbc.get("objective", 0.0), rel=1e-6, abs=1e-9)


def with_pairs(snapshot: Snapshot) -> Snapshot:
    """Everybody knows everybody: together they are worth 1.4 of one alone."""
    jobs = tuple(replace(job, workload=job.id) for job in snapshot.jobs)
    pairs = {
        (one.id, other.id, one.min_gpus): {
            kind: (0.7 * one.curves[kind].at(one.min_gpus), 0.7 * other.curves[kind].at(one.min_gpus))
            for kind in one.curves.keys() & other.curves.keys()
        }
        for one in jobs
        for other in jobs
        if one.id < other.id and one.min_gpus == other.min_gpus
    }
    return replace(snapshot, jobs=jobs, pairs=pairs)


@every_policy
@quickly
@given(snapshot=snapshots(), order=st.randoms(use_true_random=False))
def test_plans_keep_to_the_contract(name: str, snapshot: Snapshot, order: Random) -> None:
    plan = plan_round(snapshot, load(name))
    _nothing_is_moved_that_must_not_be_touched(snapshot, plan)
    limits_kept(snapshot, plan)
    _every_live_job_has_a_reason_in_words(snapshot, plan)
    jobs = list(snapshot.jobs)
    order.shuffle(jobs)
    other = plan_round(Snapshot(snapshot.now, snapshot.nodes, tuple(jobs), limits=snapshot.limits), load(name))
    assert (other.moves, other.reasons) == (plan.moves, plan.reasons), "the order of jobs counts"


def _nothing_is_moved_that_must_not_be_touched(snapshot: Snapshot, plan: Plan) -> None:
    usable = {gpu for node in snapshot.nodes if node.schedulable and not node.lost for gpu in node.gpu_ids}
    lost = {gpu for node in snapshot.nodes if node.lost for gpu in node.gpu_ids}
    jobs = {job.id: job for job in snapshot.jobs}
    after = {job.id: job.gpu_ids for job in snapshot.jobs}
    assert len({move.job_id for move in plan.moves}) == len(plan.moves)
    for move in plan.moves:
        job = jobs[move.job_id]
        assert set(move.gpu_ids) <= usable
        assert job.held is False or job.gpu_ids
        assert not set(move.gpu_ids) & job.excluded_gpus
        assert (move.gang.count if move.gang else 0) == len(move.gpu_ids)
        if set(job.gpu_ids) & lost or job.state is State.STANDBY:
            continue
        assert job.state is State.RUNNING or job.state in QUEUED
        assert job.state is not State.RUNNING or job.restartable
        assert job.not_before is None or job.not_before <= snapshot.now or job.gpu_ids
    for move in plan.moves:
        after[move.job_id] = move.gpu_ids
    given_out = [gpu for gpus in after.values() for gpu in gpus]
    assert len(given_out) == len(set(given_out)), "an accelerator was given out twice"


def limits_kept(snapshot: Snapshot, plan: Plan) -> None:
    """No limit is passed by more than it was before the plan, on any level."""
    kinds = {gpu: node.type for node in snapshot.nodes for gpu in node.gpu_ids}
    after = {job.id: job.gpu_ids for job in snapshot.jobs} | {move.job_id: move.gpu_ids for move in plan.moves}
    started = {move.job_id for move in plan.moves if move.gpu_ids and not move.before}
    for key, limit in snapshot.limits.items():
        mine = [job for job in snapshot.jobs if key in job.limits]
        held = [[g for g in job.gpu_ids if limit.type in (None, kinds[g])] for job in mine]
        now = [[g for g in after[job.id] if limit.type in (None, kinds[g])] for job in mine]
        if limit.kind == "gpus":
            assert sum(map(len, now)) <= max(limit.most, sum(map(len, held))), key
        elif limit.kind == "running_jobs":
            assert sum(map(bool, now)) <= max(limit.most, sum(map(bool, held))), key
        elif limit.kind == "queued_jobs":
            assert sum(job.id in started for job in mine) <= limit.most, key
        else:
            assert not started & {job.id for job in mine}, key
            assert sum(map(len, now)) <= sum(map(len, held)), key


class Heedless:
    """A policy that minds no limits: whoever is first gets all that fits."""

    name: ClassVar[str] = "heedless"
    title: ClassVar[str] = "Heedless"
    Parameters: ClassVar[type[Parameters]] = Parameters
    capabilities = Capabilities(Answer.COUNTS)

    def __init__(self, parameters: Any = None) -> None:
        self.parameters = Parameters()

    def allocate(self, snapshot: Snapshot) -> Allocation:
        field = view(replace(snapshot, limits={}, jobs=tuple(replace(job, limits=()) for job in snapshot.jobs)))
        counts = {job.id: job.gang for job in (*field.pinned, *field.running) if job.gang}
        free = dict(field.free)
        for job in field.running:
            free[counts[job.id].type] -= counts[job.id].count
        for job in field.queued:
            for kind, span in field.spans(job).items():
                if span.low <= free[kind]:
                    counts[job.id] = Gang(kind, min(free[kind], span.high))
                    free[kind] -= counts[job.id].count
                    break
        return Allocation(counts=counts)


@quickly
@given(snapshot=snapshots())
def test_limits_hold_for_a_policy_that_minds_none(snapshot: Snapshot) -> None:
    limits_kept(snapshot, plan_round(snapshot, Heedless()))


def _every_live_job_has_a_reason_in_words(snapshot: Snapshot, plan: Plan) -> None:
    assert set(plan.reasons) == {job.id for job in snapshot.jobs}
    for reason in plan.reasons.values():
        assert reason.token.isidentifier()
        assert reason.text.endswith(".")
    json.dumps([dict(reason.detail) for reason in plan.reasons.values()])
    json.dumps(dict(plan.figures))
    json.dumps(dict(plan.memory))


@in_turn("name", sorted(POLICIES))
def test_nothing_in_nothing_out(name: str) -> None:
    plan = plan_round(make_snapshot(nodes=()), load(name))
    assert plan.moves == ()
    assert plan.next_wake_at is None
    assert plan_round(make_snapshot(nodes=8), load(name)).moves == ()


@in_turn("name", sorted(POLICIES))
def test_parameters_describe_themselves(name: str) -> None:
    schema = policy_class(name).Parameters.model_json_schema()
    assert all(field["description"].endswith(".") for field in schema["properties"].values())


@in_turn("name", sorted(POLICIES))
def test_a_job_that_waits_for_another_does_not_start(name: str) -> None:
    waits = make_job(gpus=1, waits_for="It starts after #7 succeeds.")
    other = make_job(gpus=1)
    plan = plan_round(make_snapshot(waits, other), load(name))
    assert waits.id not in {move.job_id for move in plan.moves}
    assert (plan.reasons[waits.id].token, plan.reasons[waits.id].text) == ("dependency", waits.waits_for)
