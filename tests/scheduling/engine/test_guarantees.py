"""GPUs that projects are guaranteed: others may borrow them, and owners get them back."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scheduling.capacity.cluster_view import view
from scheduling.capacity.guarantee_usage import GuaranteeUsage
from scheduling.domain import Entity, Gang, Guarantee, Job, Limit, Plan, Qos, Snapshot
from scheduling.engine.reclaim.reclaim import CLAIMS, LEAVE_S, _sizes
from scheduling.engine.rounds import plan_round
from scheduling.errors import InvalidInput
from scheduling.lifecycle import LOCKED, QUEUED, State
from scheduling.policies import POLICIES, load_policy
from scheduling.policies.base import Policy
from scheduling.simulator.engine import Engine
from scheduling.simulator.inputs.trace import TraceJob, read_cluster
from scheduling.simulator.outcome import Options
from tests.builders import make_curve, make_job, make_nodes, make_snapshot
from tests.cases import in_turn
from tests.scheduling.strategies import COUNTING, snapshots

every_counting_policy = pytest.mark.parametrize("name", COUNTING)
SPEECH = Guarantee("speech", 4, level="project Speech")


def load(name: str) -> Policy:
    return load_policy(name, {"n": 2} if name == "static_partition" else {})


def moved(plan: Plan) -> dict[str, str]:
    return {move.job_id: move.kind for move in plan.moves}


@every_counting_policy
def test_an_owner_gets_back_what_others_borrowed(name: str) -> None:
    flat = make_curve(2.0, 4.0)
    others = [make_job(gpus=2, project="vision", holds=(n, n + 1), curve=flat, held_since=float(n)) for n in (0, 2, 4)]
    own = make_job(gpus=2, project="speech", curve=flat)
    plan = plan_round(make_snapshot(*others, own, guarantees=(SPEECH,)), load(name))
    assert moved(plan) == {others[2].id: "preempt", own.id: "start"}  # the newest of equals leaves
    (start,) = [move for move in plan.moves if move.job_id == own.id]
    assert start.gpu_ids == (4, 5)
    said = plan.reasons[others[2].id]
    assert said.token == "reclaimed"
    assert "project Speech reclaimed 2 of its 4 guaranteed GPUs, which this job had borrowed" in said.text
    assert said.detail["by"] == own.id
    assert said.detail["level"] == "guarantee of project Speech"
    assert plan.reasons[own.id].token == "reclaims"


def after(snapshot: Snapshot, plan: Plan, seconds: float) -> Snapshot:
    """The plan applied, and so much later: whoever was started trains, and is no longer under protection."""
    moves = {move.job_id: move for move in plan.moves}
    jobs = []
    for job in snapshot.jobs:
        move = moves.get(job.id)
        if move is not None:
            state = State.RUNNING if move.gpu_ids else State.WAITING_FOR_RESOURCE
            since = snapshot.now if move.gpu_ids else None
            job = replace(job, state=state, gpu_ids=move.gpu_ids, gang=move.gang, held_since=since, has_trained=True)
        jobs.append(job)
    return replace(snapshot, jobs=tuple(jobs), now=snapshot.now + seconds, memory=plan.memory)


@every_counting_policy
def test_an_owner_that_has_its_gpus_back_keeps_them(name: str) -> None:
    """However long it is: whoever borrowed them is not brought back at its cost, to be put out for it again."""
    costs: dict[str, Any] = {"restart_cost_s": 30.0, "launch_s": 10.0, "checkpoint_s": 10.0}
    own = make_job(gpus=2, project="speech", remaining_steps=1e6, **costs)
    others = [
        make_job(gpus=2, project="vision", holds=(n, n + 1), remaining_steps=4e4, held_since=float(n), **costs)
        for n in (0, 2, 4)
    ]
    snapshot = make_snapshot(own, *others, guarantees=(Guarantee("speech", 2),))
    kinds = []
    for _ in range(6):
        plan = plan_round(snapshot, load(name))
        kinds.append(sorted(moved(plan).values()))
        snapshot = after(snapshot, plan, 600.0)
    assert kinds == [["preempt", "start"], [], [], [], [], []]
    assert plan.reasons[own.id].token != "rigid"


def test_within_a_guarantee_a_policy_may_still_put_a_shorter_job_in_a_longer_ones_place() -> None:
    long = make_job(gpus=2, project="speech", holds=(0, 1), remaining_steps=1e6)
    others = [make_job(gpus=2, project="vision", holds=(n, n + 1), remaining_steps=50.0) for n in (2, 4)]
    short = make_job(gpus=2, project="speech", remaining_steps=200.0)
    snapshot = make_snapshot(long, *others, short, guarantees=(Guarantee("speech", 2),))
    assert moved(plan_round(snapshot, load("shortest_remaining_time"))) == {long.id: "preempt", short.id: "start"}
    apart = replace(snapshot, jobs=(*snapshot.jobs[:-1], replace(short, project="vision")))
    plan = plan_round(apart, load("shortest_remaining_time"))
    assert moved(plan) == {}
    assert plan.reasons[long.id].token == "within_guarantee"


@every_counting_policy
def test_no_job_is_taken_beyond_the_guarantee(name: str) -> None:
    own = [make_job(gpus=2, holds=(n, n + 1), project="speech") for n in (0, 2)]
    other = make_job(gpus=2, holds=(4, 5), project="vision")
    third = make_job(gpus=2, project="speech")
    plan = plan_round(make_snapshot(*own, other, third, guarantees=(SPEECH,)), load(name))
    assert moved(plan) == {}


@every_counting_policy
def test_a_borrower_that_runs_within_its_own_guarantee_stays(name: str) -> None:
    other = make_job(gpus=4, holds=(0, 1, 2, 3), project="vision", curve=make_curve(1.0, 2.0, 3.0, 4.0))
    rigid = make_job(gpus=2, holds=(4, 5), project="audio", restartable=False)
    own = make_job(gpus=2, project="speech")
    rows = (Guarantee("speech", 2), Guarantee("vision", 4))
    plan = plan_round(make_snapshot(other, rigid, own, guarantees=rows), load(name))
    assert moved(plan) == {}


def test_protection_holds_until_the_guarantees_time_is_over() -> None:
    late: dict[str, Any] = {"state": State.RUNNING_PROTECTED, "protected_until": 5_000.0}
    other = make_job(gpus=6, holds=range(6), project="vision", **late)
    own = make_job(gpus=2, project="speech")
    snapshot = make_snapshot(other, own, guarantees=(replace(SPEECH, reclaim_within_s=300.0),))
    plan = plan_round(snapshot, load("fifo_gang"))
    assert moved(plan) == {}
    assert plan.reasons[own.id].token == "reclaiming"
    assert "in 270 s at the latest" in plan.reasons[own.id].text
    assert plan.next_wake_at == 1000.0 + 300.0 - LEAVE_S
    assert plan.memory[CLAIMS] == {own.id: 1000.0}
    then = replace(snapshot, now=plan.next_wake_at, memory=plan.memory)
    assert moved(plan_round(then, load("fifo_gang"))) == {other.id: "preempt", own.id: "start"}


def test_what_ends_its_protection_earlier_is_taken_then() -> None:
    other = make_job(gpus=6, holds=range(6), project="vision", state=State.RUNNING_PROTECTED, protected_until=1_020.0)
    own = make_job(gpus=2, project="speech")
    plan = plan_round(make_snapshot(other, own, guarantees=(SPEECH,)), load("fifo_gang"))
    assert plan.next_wake_at == 1_020.0


def test_processes_on_their_way_out_are_waited_for() -> None:
    others = [make_job(gpus=4, holds=range(4), project="vision")]
    own = make_job(gpus=2, project="speech")
    snapshot = make_snapshot(*others, own, guarantees=(SPEECH,), blocked_gpu_ids=frozenset({4, 5}))
    assert moved(plan_round(snapshot, load("fifo_gang"))) == {}


def test_free_gpus_go_to_an_owner_before_a_job_who_would_borrow() -> None:
    first = make_job(gpus=6, project="vision")  # heads the queue and does not fit
    other = make_job(gpus=4, holds=(0, 1, 2, 3), project="vision")
    own = make_job(gpus=2, project="speech")
    plan = plan_round(make_snapshot(first, other, own, guarantees=(SPEECH,)), load("fifo_gang"))
    assert moved(plan) == {own.id: "start"}
    assert plan.reasons[own.id].token == "guaranteed"


def test_the_lowest_priority_leaves_first_and_no_more_than_needed() -> None:
    urgent = make_job(gpus=2, holds=(0, 1), project="vision", priority=5, held_since=900.0)
    small = make_job(gpus=1, holds=(2,), project="vision", held_since=950.0)
    large = make_job(gpus=3, holds=(3, 4, 5), project="vision", held_since=100.0)
    own = make_job(gpus=3, project="speech")
    plan = plan_round(make_snapshot(urgent, small, large, own, guarantees=(SPEECH,)), load("fifo_gang"))
    assert moved(plan) == {large.id: "preempt", own.id: "start"}


def test_a_level_that_has_its_own_takes_only_from_within_itself() -> None:
    tree = {"lab": Entity(), "speech": Entity("lab"), "audio": Entity("lab"), "vision": Entity()}
    rows = (Guarantee("lab", 4), Guarantee("speech", 2))
    outsider = make_job(gpus=2, holds=(4, 5), project="vision", held_since=999.0)
    inside = make_job(gpus=4, holds=(0, 1, 2, 3), project="audio", held_since=1.0, min_gpus=4)
    own = make_job(gpus=2, project="speech")
    snapshot = make_snapshot(outsider, inside, own, guarantees=rows, entities=tree)
    plan = plan_round(snapshot, load("fifo_gang"))
    assert moved(plan) == {inside.id: "preempt", own.id: "start"}  # the lab as a whole has its four
    assert "project speech reclaimed 2 of its 2" in plan.reasons[inside.id].text


def test_a_department_takes_from_outside_for_all_of_its_projects() -> None:
    tree = {"lab": Entity(), "speech": Entity("lab"), "vision": Entity()}
    outsider = make_job(gpus=6, holds=range(6), project="vision")
    own = make_job(gpus=2, project="speech")
    row = Guarantee("lab", 4, level="project Lab")
    plan = plan_round(make_snapshot(outsider, own, guarantees=(row,), entities=tree), load("fifo_gang"))
    assert "project Lab reclaimed 2 of its 4" in plan.reasons[outsider.id].text


def test_a_guarantee_of_a_type_is_of_that_type() -> None:
    nodes = [*make_nodes(2, type="a"), *make_nodes(2, type="b", first_id=10)]
    on_a = make_job(gpus=2, holds=(0, 1), project="vision", type="a")
    on_b = make_job(gpus=2, holds=(10, 11), project="vision", type="b")
    curves = {"a": make_curve(), "b": make_curve()}
    own = make_job(gpus=1, project="speech", curves=curves)
    plan = plan_round(
        make_snapshot(on_a, on_b, own, nodes=nodes, guarantees=(Guarantee("speech", 2, "b"),)), load("fifo_gang")
    )
    assert moved(plan) == {on_b.id: "preempt", own.id: "start"}


def test_a_borrower_goes_on_smaller_where_the_policy_resizes_jobs() -> None:
    other = make_job(min_gpus=4, max_gpus=6, holds=range(6), project="vision")
    smaller = make_job(min_gpus=2, max_gpus=6, holds=(), project="speech", number=99)
    plan = plan_round(make_snapshot(other, smaller, guarantees=(SPEECH,)), load("f_scheduling"))
    kinds = moved(plan)
    assert kinds == {other.id: "rescale", smaller.id: "start"}
    elastic = make_job(min_gpus=1, max_gpus=6, holds=range(6), project="vision")
    first = make_job(min_gpus=6, max_gpus=6, project="vision", priority=9)
    plan = plan_round(make_snapshot(elastic, first, smaller, guarantees=(SPEECH,)), load("f_scheduling"))
    assert moved(plan)[smaller.id] == "start"


def test_a_job_that_cannot_checkpoint_does_not_borrow() -> None:
    rigid = make_job(gpus=4, project="vision", restartable=False)
    small = make_job(gpus=2, project="vision", restartable=False)
    own = make_job(gpus=4, project="speech", restartable=False)
    plan = plan_round(make_snapshot(rigid, small, guarantees=(SPEECH,)), load("multifactor"))
    assert moved(plan) == {small.id: "start"}
    assert plan.reasons[rigid.id].token == "may_not_borrow"
    assert moved(plan_round(make_snapshot(own, guarantees=(SPEECH,)), load("multifactor"))) == {own.id: "start"}


def test_limits_hold_for_owners_too() -> None:
    limits = {"q": Limit("gpus", 1, level="project Speech")}
    other = make_job(gpus=6, holds=range(6), project="vision")
    own = make_job(gpus=2, project="speech", limits=("q",))
    plan = plan_round(make_snapshot(other, own, guarantees=(SPEECH,), limits=limits), load("fifo_gang"))
    assert moved(plan) == {}
    assert plan.reasons[own.id].token == "quota"


def test_what_borrowers_leave_of_a_limit_that_binds_them_too_is_the_owners() -> None:
    limits = {"q": Limit("gpus", 6, level="project Lab")}
    other = make_job(gpus=6, holds=range(6), project="vision", limits=("q",))
    own = make_job(gpus=2, project="speech", limits=("q",))
    plan = plan_round(make_snapshot(other, own, guarantees=(SPEECH,), limits=limits), load("fifo_gang"))
    assert moved(plan) == {other.id: "preempt", own.id: "start"}


@in_turn("why", ["limit", "within"])
def test_borrowers_are_not_looked_at_again_for_each_owner_alike(monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    """Owners that have waited for different times, each with a limit of its own, and cannot be served: because of that
    limit, or since the others run within a guarantee of their own."""
    asked = list[str]()
    is_safe = GuaranteeUsage.is_safe

    def count(self: GuaranteeUsage, job: Job, from_job: Job) -> bool:
        asked.append(job.id)
        return is_safe(self, job, from_job)

    monkeypatch.setattr(GuaranteeUsage, "is_safe", count)
    others = [make_job(gpus=2, holds=(n, n + 1), project="vision") for n in range(0, 60, 2)]
    owners = [make_job(gpus=50, project="speech", limits=(f"user{n}",)) for n in range(20)]
    most = 4 if why == "limit" else 100
    limits = {f"user{n}": Limit("gpus", most, level=f"user {n}") for n in range(20)}
    rows = (Guarantee("speech", 60), *([Guarantee("vision", 60)] if why == "within" else []))
    memory = {CLAIMS: {job.id: 900.0 + n for n, job in enumerate(owners)}}
    snapshot = make_snapshot(*others, *owners, nodes=make_nodes(60), guarantees=rows, limits=limits, memory=memory)
    assert moved(plan_round(snapshot, load("fifo_gang"))) == {}
    assert len(asked) == (0 if why == "limit" else len(others))


def test_a_level_of_service_preempts_no_job_that_runs_within_a_guarantee() -> None:
    levels = {"low": Qos(0), "high": Qos(9, ("low",))}
    own = make_job(gpus=4, holds=(0, 1, 2, 3), project="speech", qos="low")
    other = make_job(gpus=2, holds=(4, 5), project="vision", qos="low")
    urgent = make_job(gpus=2, project="audio", qos="high")
    plan = plan_round(make_snapshot(own, other, urgent, guarantees=(SPEECH,), qos=levels), load("multifactor"))
    assert moved(plan) == {other.id: "preempt", urgent.id: "start"}


def test_a_hard_budget_that_is_used_up_parks_who_can_write_a_checkpoint() -> None:
    limits = {"b": Limit("spent", level="project Vision", text="The limit is reached.", parks=True)}
    running = make_job(gpus=2, holds=(0, 1), project="vision", limits=("b",))
    rigid = make_job(gpus=2, holds=(2, 3), project="vision", limits=("b",), restartable=False)
    waiting = make_job(gpus=2, project="vision", limits=("b",))
    for name in sorted(POLICIES):
        plan = plan_round(make_snapshot(running, rigid, waiting, limits=limits), load(name))
        assert moved(plan) == {running.id: "preempt"}, name
        assert plan.reasons[running.id].token == "budget_parked"
        assert plan.reasons[waiting.id].token == "quota_period"
    soft = {"b": replace(limits["b"], parks=False)}
    assert moved(plan_round(make_snapshot(running, rigid, waiting, limits=soft), load("fifo_gang"))) == {}


# Properties --------------------------------------------------------------------------------------------

TREE = {"lab": Entity(), "speech": Entity("lab"), "audio": Entity("lab"), "vision": Entity()}


@st.composite
def guaranteed(draw: st.DrawFn) -> Snapshot:
    """Snapshots whose guarantees could have been set: what lies within a level is no more than the level's."""
    found = draw(snapshots())
    total = sum(len(node.gpu_ids) for node in found.nodes)
    lab = draw(st.integers(0, total))
    speech = draw(st.integers(0, lab))
    sizes = {"lab": lab, "speech": speech, "audio": draw(st.integers(0, lab - speech))}
    sizes["vision"] = draw(st.integers(0, total - lab))
    rows = tuple(Guarantee(key, count) for key, count in sizes.items() if count)
    return replace(found, guarantees=rows, entities=TREE)


@every_counting_policy
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(snapshot=guaranteed(), overdue=st.booleans())
def test_no_gpu_twice_and_no_job_taken_that_may_not_be(name: str, snapshot: Snapshot, overdue: bool) -> None:
    if overdue:
        memory = {CLAIMS: {job.id: snapshot.now - 10_000 for job in snapshot.jobs}}
        snapshot = replace(snapshot, memory=memory)
    plan = plan_round(snapshot, load(name))
    book, jobs = GuaranteeUsage(snapshot), {job.id: job for job in snapshot.jobs}
    after = {job.id: job.gpu_ids for job in snapshot.jobs} | {move.job_id: move.gpu_ids for move in plan.moves}
    counts = Counter(gpu for ids in after.values() for gpu in ids)
    assert not counts or max(counts.values()) == 1
    for move in plan.moves:
        if plan.reasons[move.job_id].token != "reclaimed":
            continue
        job, owner = jobs[move.job_id], jobs[str(plan.reasons[move.job_id].detail["by"])]
        assert not book.is_safe(job, owner)
        assert job.restartable
        usable = {gpu for node in snapshot.nodes if node.schedulable and not node.lost for gpu in node.gpu_ids}
        assert owner.state in QUEUED or not usable.issuperset(owner.gpu_ids)  # or it has to leave where it is
        assert after[owner.id]
        assert job.state is State.RUNNING or (overdue and job.state in LOCKED)


@every_counting_policy
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(snapshot=guaranteed())
def test_after_its_time_no_claim_is_left_that_borrowers_could_serve(name: str, snapshot: Snapshot) -> None:
    """Whoever still waits within a guarantee finds too few who could leave: rigid ones, and those within their own."""
    snapshot = replace(snapshot, memory={CLAIMS: {job.id: 0.0 for job in snapshot.jobs}}, limits={})
    snapshot = replace(snapshot, jobs=tuple(replace(job, limits=()) for job in snapshot.jobs))
    plan = plan_round(snapshot, load(name))
    moves = {move.job_id: move for move in plan.moves}
    now = [
        replace(job, gpu_ids=moves[job.id].gpu_ids, gang=moves[job.id].gang) if job.id in moves else job
        for job in snapshot.jobs
    ]
    book = GuaranteeUsage(replace(snapshot, jobs=tuple(now)))
    usable = {gpu: node.type for node in snapshot.nodes if node.schedulable and not node.lost for gpu in node.gpu_ids}
    held = {gpu for job in now for gpu in job.gpu_ids}
    # What an assignment that is withdrawn in this round leaves is planned in the next, which follows at once.
    held |= {
        gpu for job in snapshot.jobs if plan.reasons[job.id].token == "assignment_withdrawn" for gpu in job.gpu_ids
    }
    for owner in plan.memory.get(CLAIMS, {}):
        job = next(each for each in now if each.id == owner)
        if job.gpu_ids or job.excluded_gpus:
            continue
        policy, field = load(name), view(snapshot)
        for kind, count in _sizes(policy, field, job).items():
            gang = Gang(kind, count)
            if book.claim(job, gang) is None:
                continue
            free = sum(of == kind and gpu not in held for gpu, of in usable.items())
            could = sum(
                len(each.gpu_ids)
                for each in now
                if each.id not in moves and each.gpu_ids and each.restartable and not each.held
                and each.state in (State.RUNNING, State.RUNNING_PROTECTED, State.LAUNCHING)
                and usable.keys() >= set(each.gpu_ids) and usable[each.gpu_ids[0]] == kind
                and not book.is_safe(each, job) and book.claim(job, gang, book.chain(each.project))
            )  # fmt: skip
            assert free + could < gang.count


# In simulated time -------------------------------------------------------------------------------------


def simulate(tmp_path: Path, name: str, jobs: list[TraceJob], rows: list[dict[str, Any]]) -> Engine:
    cluster = {"nodes": [{"type": "titan_xp", "gpus": 6}], "guarantees": rows}
    (tmp_path / "c.json").write_text(json.dumps(cluster))
    engine = Engine(jobs, read_cluster(tmp_path / "c.json"), load(name), options=Options(keep_holds=True))
    engine.run()
    return engine


@every_counting_policy
def test_in_simulated_time_owners_start_in_time_and_borrowers_come_back(name: str, tmp_path: Path) -> None:
    curves = {"titan_xp": make_curve(1.0, 2.0)}
    jobs = [TraceJob(f"v{n}", n, 0.0, 9_000.0, curves, "", "vision", min_gpus=2, max_gpus=2) for n in range(1, 6)]
    jobs += [TraceJob(f"s{n}", 10 + n, 10.0 + n, 500.0, curves, "", "speech", min_gpus=2, max_gpus=2) for n in (1, 2)]
    engine = simulate(tmp_path, name, jobs, [{"project": "speech", "gpus": 4, "reclaim_within_s": 100}])
    holds = engine.outcome.holds
    assert all(run.finished_at for run in engine.runs)  # nothing is lost
    for run in engine.runs:
        if run.job.project == "speech":
            begun = min(start for number, _, start, _ in holds if number == run.job.number)
            assert begun - run.job.arrival_s <= 100
    assert sum(run.restarts for run in engine.runs if run.job.project == "vision") >= 2
    assert not any(run.restarts for run in engine.runs if run.job.project == "speech")


def test_guarantees_beyond_the_cluster_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="7 GPUs are guaranteed and there are 6"):
        simulate(tmp_path, "fifo_gang", [], [{"project": "a", "gpus": 4}, {"project": "b", "gpus": 3}])
