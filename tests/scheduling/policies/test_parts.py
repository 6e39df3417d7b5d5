"""Parts of GPUs under policies that give whole ones."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduling.domain import WHOLE, Guarantee, Job, Limit, Partition, Qos, Snapshot
from scheduling.engine.rounds import plan_round
from scheduling.forecast.next_round import Planned, preview
from scheduling.lifecycle import State
from scheduling.policies import POLICIES, load_policy, policy_class
from tests.builders import make_curve, make_job, make_nodes, make_snapshot
from tests.cases import in_turn

WHOLES = sorted(name for name in POLICIES if not policy_class(name).capabilities.places_gpu_parts)
FEW = ["f_scheduling", "fifo_gang", "multifactor", "max_min_fairness", "shortest_remaining_time"]


def part(milli: int, **changes: Any) -> Job:
    return make_job(gpus=1, gpu_milli=milli, **changes)


def after(snapshot: Snapshot, policy: str) -> dict[str, tuple[int, ...]]:
    """What everybody has once the plan is carried out."""
    plan = plan_round(snapshot, load_policy(policy, {}))
    assert "solver_failed" not in plan.figures, plan.reasons
    return {job.id: job.gpu_ids for job in snapshot.jobs} | {move.job_id: move.gpu_ids for move in plan.moves}


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    memory, sizes = draw(st.sampled_from([None, 16_000])), draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    nodes = tuple(replace(node, gpu_memory_mib=memory) for node in make_nodes(*sizes))
    jobs: list[Job] = []
    free = {gpu: WHOLE for node in nodes for gpu in node.gpu_ids}
    for number in range(1, draw(st.integers(1, 10)) + 1):
        milli = draw(st.sampled_from([200, 340, 500, 700, WHOLE]))
        changes: dict[str, Any] = {"number": number, "gpu_milli": milli, "priority": draw(st.integers(0, 2))}
        room = [gpu for gpu, left in free.items() if left >= milli]
        holds = draw(st.booleans())
        if holds and room:
            gpu = draw(st.sampled_from(room))
            free[gpu] -= milli
            state = draw(st.sampled_from([State.RUNNING, State.RUNNING, State.LAUNCHING, State.STANDBY]))
            changes |= {"holds": (gpu,), "state": state}
        elif milli == WHOLE:
            changes |= {"min_gpus": draw(st.integers(1, 2))}
        if milli < WHOLE:
            changes |= {"min_gpus": 1, "max_gpus": 1, "gpu_memory_mib": 2_000}
        jobs.append(make_job(**changes))
    if draw(st.booleans()):
        inside = frozenset(node.name for node in nodes if draw(st.booleans()))
        place = {gpu: node.name for node in nodes for gpu in node.gpu_ids}
        inner = [place[job.gpu_ids[0]] in inside if job.gpu_ids else draw(st.booleans()) for job in jobs]
        jobs = [replace(job, partition="p" if here else "") for job, here in zip(jobs, inner, strict=True)]
        return make_snapshot(*jobs, nodes=nodes, partitions={"p": Partition(inside)})
    return make_snapshot(*jobs, nodes=nodes)


@pytest.mark.parametrize("policy", WHOLES)
@settings(max_examples=15, deadline=None)
@given(snapshot=snapshots())
def test_no_gpu_is_given_beyond_what_it_has_and_parts_stay(policy: str, snapshot: Snapshot) -> None:
    had, has = {job.id: job.gpu_ids for job in snapshot.jobs}, after(snapshot, policy)
    shares = Counter[int]()
    for job in snapshot.jobs:
        # whoever leaves a GPU still has it when others are given it, but for the database, which has them wait
        for gpu in has[job.id]:
            shares[gpu] += job.gpu_milli
        if job.gpu_milli < WHOLE and had[job.id]:
            assert has[job.id] == had[job.id]
    assert max(shares.values(), default=0) <= WHOLE


@in_turn("policy", WHOLES)
def test_waiting_parts_start_together_on_one_gpu(policy: str) -> None:
    jobs = [part(500, number=1), part(250, number=2), part(250, number=3), make_job(gpus=1, number=4)]
    has = after(make_snapshot(*jobs, nodes=make_nodes(2)), policy)
    assert all(has.values())
    assert has[jobs[0].id] == has[jobs[1].id] == has[jobs[2].id] != has[jobs[3].id]


@in_turn("policy", FEW)
def test_who_comes_joins_the_fullest_gpu_that_has_room(policy: str) -> None:
    holding = [part(300, holds=(0,)), part(600, holds=(1,)), make_job(gpus=1, holds=(2,), restartable=False)]
    comes = part(400)
    snapshot = make_snapshot(*holding, comes, nodes=make_nodes(3))
    assert after(snapshot, policy)[comes.id] == (1,)
    [move] = plan_round(snapshot, load_policy(policy, {})).moves
    assert move.reason.text == "It starts on 40 % of a titan_xp, beside other jobs."


@in_turn("policy", FEW)
def test_a_part_waits_where_nothing_has_room_and_says_for_whom(policy: str) -> None:
    holding = [part(600, holds=(0,))]
    first, second = part(500, priority=1), part(500)
    plan = plan_round(make_snapshot(*holding, first, second, nodes=make_nodes(1)), load_policy(policy, {}))
    assert not plan.moves
    assert plan.reasons[second.id].text == (
        f"No shared GPU has room for its 50 %; it starts beside #{first.number} once that job has a GPU."
    )


@in_turn("policy", ["f_scheduling", "fifo_gang"])
def test_a_part_that_no_job_has_room_for_is_told_of_parts(policy: str) -> None:
    """Not that it needs a whole GPU."""
    holding = [part(200, holds=(0,), gpu_memory_mib=6_000)]
    waits = part(300, gpu_memory_mib=5_120)
    nodes = [replace(node, gpu_memory_mib=8_000) for node in make_nodes(1)]
    reason = plan_round(make_snapshot(*holding, waits, nodes=nodes), load_policy(policy, {})).reasons[waits.id]
    assert (reason.token, "room for its 30 % and 5 GiB of GPU memory" in reason.text) == ("waits_to_share", True)


def test_memory_bounds_who_joins_and_where() -> None:
    small, large = make_nodes(1), make_nodes(1, type="v100", first_id=1)
    nodes = (replace(small[0], gpu_memory_mib=8_000), replace(large[0], gpu_memory_mib=16_000))
    curves = {"titan_xp": make_curve(9.0), "v100": make_curve(1.0)}
    wide = part(300, gpu_memory_mib=12_000, curves=curves)
    assert after(make_snapshot(wide, nodes=nodes), "fifo_gang")[wide.id] == (1,)
    beside = part(300, gpu_memory_mib=5_000, curves={"v100": make_curve()})
    holding = replace(wide, state=State.RUNNING, gpu_ids=(1,))
    assert after(make_snapshot(holding, beside, nodes=nodes), "fifo_gang")[beside.id] == ()
    too_wide = part(300, gpu_memory_mib=17_000, curves=curves)
    plan = plan_round(make_snapshot(too_wide, nodes=nodes), load_policy("fifo_gang", {}))
    assert plan.reasons[too_wide.id].token == "never"


def test_limits_bind_who_joins_and_who_is_bundled() -> None:
    limits = {"mine": Limit("running_jobs", 2, level="project Speech")}
    jobs = [part(200, limits=("mine",)) for _ in range(3)]
    has = after(make_snapshot(*jobs, nodes=make_nodes(1), limits=limits), "f_scheduling")
    assert sum(bool(gpus) for gpus in has.values()) == 2
    held = part(200, holds=(0,), limits=("mine",))
    has = after(make_snapshot(held, *jobs, nodes=make_nodes(1), limits=limits), "f_scheduling")
    assert sum(bool(gpus) for gpus in has.values()) == 2


def test_who_may_not_start_holds_up_no_job_of_its_bundle() -> None:
    limits = {"full": Limit("running_jobs", 1, level="project Speech")}
    held = make_job(gpus=1, holds=(0,), limits=("full",), restartable=False)
    first, second = part(300, limits=("full",), priority=1), part(300)
    for policy in ("fifo_gang", "f_scheduling", "max_min_fairness"):
        has = after(make_snapshot(held, first, second, nodes=make_nodes(2), limits=limits), policy)
        assert (has[first.id], has[second.id]) == ((), (1,))


def test_bundles_follow_the_policy_and_hold_equal_types_only() -> None:
    curves = {"titan_xp": make_curve(), "v100": make_curve()}
    taken = make_job(gpus=1, holds=(1,), type="v100", restartable=False)
    nodes = (*make_nodes(1), *make_nodes(1, type="v100", first_id=1))
    picky, easy = part(300, curves={"v100": make_curve()}), part(300, curves=curves)
    has = after(make_snapshot(taken, picky, easy, nodes=nodes), "multifactor")
    assert (has[picky.id], has[easy.id]) == ((), (0,))
    long, short = part(600, remaining_steps=1e6), part(600, remaining_steps=10.0)
    has = after(make_snapshot(long, short, nodes=make_nodes(1)), "shortest_remaining_time")
    assert (has[long.id], has[short.id]) == ((), (0,))


@in_turn("policy", FEW[:3])
def test_a_job_that_is_ahead_is_not_kept_from_a_gpu_by_those_who_keep_joining(policy: str) -> None:
    holds = part(500, holds=(0,), remaining_steps=100.0)
    whole = make_job(gpus=1, priority=100)
    long, short = part(400, remaining_steps=10_000.0), part(400, remaining_steps=50.0)
    has = after(make_snapshot(holds, whole, long, short, nodes=make_nodes(1)), policy)
    assert (has[whole.id], has[long.id], has[short.id]) == ((), (), (0,))


def test_processors_of_the_node_bound_a_bundle() -> None:
    node = replace(make_nodes(1)[0], cpu_milli=8_000)
    jobs = [part(300, cpu_milli=8_000), part(300, cpu_milli=8_000), part(300, cpu_milli=0)]
    has = after(make_snapshot(*jobs, nodes=(node,)), "fifo_gang")
    assert [bool(has[job.id]) for job in jobs] == [True, False, True]


def test_parts_on_a_lost_node_are_told_of_the_node() -> None:
    lost, other = make_nodes(1, schedulable=False, lost=True), make_nodes(1, first_id=1, type="v100")
    jobs = [part(600, holds=(0,), curves={"titan_xp": make_curve(), "v100": make_curve()}) for _ in range(2)]
    jobs[1] = replace(jobs[1], gpu_milli=400)
    full = part(500, holds=(1,), type="v100")
    plan = plan_round(make_snapshot(*jobs, full, nodes=(*lost, *other)), load_policy("fifo_gang", {}))
    assert {move.job_id: move.reason.token for move in plan.moves} == dict.fromkeys(
        (job.id for job in jobs), "node_lost"
    )


def test_jobs_of_two_partitions_share_no_gpu() -> None:
    nodes = make_nodes(1, 1)
    partitions = {name: Partition(frozenset({node.name})) for name, node in zip("ab", nodes, strict=True)}
    jobs = [part(200, partition=name) for name in "aabb"]
    has = after(make_snapshot(*jobs, nodes=nodes, partitions=partitions), "f_scheduling")
    assert [has[job.id] for job in jobs] == [(0,), (0,), (1,), (1,)]


def test_a_part_on_a_drained_node_leaves_where_there_is_room_and_else_stays() -> None:
    drained, other = make_nodes(1, schedulable=False), make_nodes(1, first_id=1, type="v100")
    curves = {"titan_xp": make_curve(), "v100": make_curve()}
    stays = part(500, holds=(0,), curves=curves)
    has = after(make_snapshot(stays, nodes=(*drained, *other)), "fifo_gang")
    assert has[stays.id] == (1,)
    full = make_job(gpus=1, holds=(1,), type="v100", restartable=False)
    has = after(make_snapshot(stays, full, nodes=(*drained, *other)), "fifo_gang")
    assert has[stays.id] == (0,)


def test_what_is_guaranteed_is_not_taken_from_who_shares_a_gpu() -> None:
    guarantees = (Guarantee("vision", 1, reclaim_within_s=0.0),)
    shared = [part(500, holds=(0,)), part(500, holds=(0,))]
    whole, claims = make_job(gpus=1, holds=(1,)), make_job(gpus=1, project="vision")
    has = after(make_snapshot(*shared, whole, claims, nodes=make_nodes(2), guarantees=guarantees), "fifo_gang")
    assert [has[job.id] for job in shared] == [(0,), (0,)]
    assert (has[whole.id], has[claims.id]) == ((), (1,))
    alone = part(990, holds=(0,))
    has = after(make_snapshot(alone, claims, nodes=make_nodes(1), guarantees=guarantees), "fifo_gang")
    assert (has[alone.id], has[claims.id]) == ((), (0,))


def test_parts_count_in_guarantees_by_their_share_and_borrow_nothing() -> None:
    guarantees = (Guarantee("vision", 2, reclaim_within_s=0.0),)
    quarters = [part(250, holds=(0,), project="vision") for _ in range(4)]
    borrows, claims = make_job(gpus=1, holds=(1,)), make_job(gpus=1, project="vision")
    snapshot = make_snapshot(*quarters, borrows, claims, nodes=make_nodes(2), guarantees=guarantees)
    assert after(snapshot, "fifo_gang")[claims.id] == (1,)
    evades = [part(990) for _ in range(2)]
    guarantees = (Guarantee("vision", 1, reclaim_within_s=0.0),)
    has = after(make_snapshot(*evades, nodes=make_nodes(2), guarantees=guarantees), "fifo_gang")
    assert sum(bool(has[job.id]) for job in evades) == 1


def test_a_higher_level_puts_out_who_is_alone_on_a_gpu_only() -> None:
    qos = {"urgent": Qos(10, ("normal",)), "normal": Qos()}
    urgent = make_job(gpus=1, qos="urgent", priority=10)
    alone = part(500, holds=(0,), qos="normal")
    has = after(make_snapshot(alone, urgent, nodes=make_nodes(1), qos=qos), "multifactor")
    assert has[alone.id] == ()
    beside = part(500, holds=(0,), qos="normal")
    has = after(make_snapshot(alone, beside, urgent, nodes=make_nodes(1), qos=qos), "multifactor")
    assert (has[alone.id], has[beside.id]) == ((0,), (0,))


def test_a_preview_says_that_a_part_would_start_beside_others() -> None:
    snapshot, policy = make_snapshot(part(500, holds=(0,)), nodes=make_nodes(1)), load_policy("f_scheduling", {})
    said = preview(Planned.of(snapshot, plan_round(snapshot, policy)), snapshot, policy, [part(400), part(400)])
    assert (said.verdict, said.gpu_ids, said.starting) == ("now", (0,), 1)
