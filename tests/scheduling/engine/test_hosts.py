"""Processors and memory of nodes under policies that count GPUs: fitted together with these."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduling.domain import Entity, Guarantee, Job, Node, Plan, Qos, Snapshot, Window
from scheduling.domain.reason_codes import ReasonCode
from scheduling.engine.rounds import plan_round
from scheduling.forecast.feasibility import Reach
from scheduling.policies import POLICIES, load_policy
from tests.builders import make_curve, make_job, make_nodes, make_snapshot
from tests.cases import in_turn

GIB = 1024
COUNTING = [name for name in POLICIES if not load_policy(name).capabilities.places_gpu_parts]
QUICK = ["f_scheduling", "fifo_gang", "multifactor", "max_min_fairness", "static_partition", "shortest_job_first"]


def after(snapshot: Snapshot, plan: Plan) -> dict[str, tuple[int, ...]]:
    held = {job.id: job.gpu_ids for job in snapshot.jobs}
    return held | {move.job_id: move.gpu_ids for move in plan.moves}


def used(snapshot: Snapshot, plan: Plan) -> dict[str, tuple[int, int]]:
    """(processors, memory) that are asked for on each node once the plan is carried out."""
    held = after(snapshot, plan)
    found = {}
    for node in snapshot.nodes:
        there = [job for job in snapshot.jobs if set(held[job.id]) & set(node.gpu_ids)]
        found[node.name] = sum(job.cpu_milli for job in there), sum(job.memory_mib for job in there)
    return found


def check(snapshot: Snapshot, plan: Plan) -> None:
    for node in snapshot.nodes:
        cpu, memory = used(snapshot, plan)[node.name]
        assert node.cpu_milli is None or cpu <= node.cpu_milli
        assert node.memory_mib is None or memory <= node.memory_mib


def hosts(*sizes: int, cpus: int = 8, memory_mib: int = 64 * GIB) -> tuple[Node, ...]:
    return make_nodes(*sizes, cpu_milli=1000 * cpus, memory_mib=memory_mib)


def started(plan: Plan) -> set[str]:
    return {move.job_id for move in plan.moves if move.kind == "start"}


@in_turn("name", COUNTING)
def test_jobs_that_ask_for_more_processors_than_there_are_do_not_start_together(name: str) -> None:
    first, second = make_job(gpus=1, cpu_milli=6000), make_job(gpus=1, cpu_milli=6000)
    plain = make_job(gpus=1)
    snapshot = make_snapshot(first, second, plain, nodes=hosts(4))
    plan = plan_round(snapshot, load_policy(name))
    check(snapshot, plan)
    assert len(started(plan) & {first.id, second.id}) == 1
    assert plain.id in started(plan)


@in_turn("name", QUICK)
def test_a_job_that_fits_no_node_waits_and_holds_up_no_job(name: str) -> None:
    holder = make_job(gpus=1, holds=[0], memory_mib=40 * GIB)
    large, small = make_job(gpus=1, memory_mib=40 * GIB), make_job(gpus=1, memory_mib=8 * GIB)
    snapshot = make_snapshot(holder, large, small, nodes=hosts(4))
    plan = plan_round(snapshot, load_policy(name))
    assert started(plan) == {small.id}
    check(snapshot, plan)
    reason = plan.reasons[large.id]
    if load_policy(name).capabilities.shares_time:  # jobs take turns: whoever runs is not in the way for good
        assert reason.token == "no_layout"
        assert "with the processors and memory that it asks for" in reason.text
    else:
        assert reason.token == ReasonCode.NO_HOST
        assert "40 GiB of host memory on each node, and no node with GPUs for it now has as much free" in reason.text


@in_turn("name", QUICK)
def test_it_starts_on_the_node_that_has_room(name: str) -> None:
    holder = make_job(gpus=1, holds=[0], cpu_milli=6000)
    job = make_job(gpus=1, cpu_milli=4000)
    snapshot = make_snapshot(holder, job, nodes=hosts(2, 4))
    plan = plan_round(snapshot, load_policy(name))
    assert set(after(snapshot, plan)[job.id]) <= {2, 3, 4, 5}
    check(snapshot, plan)


@in_turn("name", ["f_scheduling", "fifo_gang", "first_fit", "dqn_gpu", "packing_exact"])
def test_what_no_node_is_large_enough_for_is_said_never_to_start(name: str) -> None:
    """By itself and asked before; nodes that are out of service count."""
    asks: list[tuple[dict[str, Any], str]] = [
        (
            {"cpu_milli": 64_000},
            "It asks for 64 processors and no node that it may use has more than 8 processors, so it cannot",
        ),
        ({"memory_mib": 900 * GIB, "gpu_milli": 500}, "900 GiB of host memory and no node"),
    ]
    for asked, text in asks:
        job = make_job(gpus=1, **asked)
        snapshot = make_snapshot(job, nodes=hosts(4))
        reason = plan_round(snapshot, load_policy(name)).reasons[job.id]
        assert (reason.token, text in reason.text) == ("never", True)
        assert Reach(snapshot).why_not(job) == "never"
        large = replace(hosts(1)[0], name="large", gpu_ids=(9,), cpu_milli=64_000, memory_mib=900 * GIB)
        away = make_snapshot(job, nodes=(*hosts(4), replace(large, schedulable=False)))
        assert plan_round(away, load_policy(name)).reasons[job.id].token == "node_unavailable"
        assert Reach(away).why_not(job) == "node_unavailable"


@in_turn("name", ["f_scheduling", "fifo_gang"])
def test_parts_that_were_to_share_with_who_fits_no_node_are_each_looked_at(name: str) -> None:
    """They are bundled; where the first starts nowhere the others are for themselves, within processors and memory."""
    jobs = [make_job(gpus=1, gpu_milli=100, memory_mib=900 * GIB) for _ in range(3)]
    plan = plan_round(make_snapshot(*jobs, nodes=hosts(4)), load_policy(name))
    assert [plan.reasons[job.id].token for job in jobs] == ["never"] * 3


def test_nodes_of_which_nothing_is_known_bound_no_job() -> None:
    jobs = [make_job(gpus=1, cpu_milli=64_000, memory_mib=999 * GIB) for _ in range(3)]
    plan = plan_round(make_snapshot(*jobs, nodes=make_nodes(4)), load_policy("f_scheduling"))
    assert started(plan) == {job.id for job in jobs}


def test_a_gang_on_several_nodes_asks_of_each() -> None:
    """On both of eight processors it asks for five; one node has four left."""
    holder = make_job(gpus=1, holds=[0], cpu_milli=4000)
    gang = make_job(gpus=5, cpu_milli=5000)
    nodes = hosts(4, 4)
    plan = plan_round(make_snapshot(holder, gang, nodes=nodes), load_policy("fifo_gang"))
    assert not started(plan)
    alone = plan_round(make_snapshot(replace(gang), nodes=nodes), load_policy("fifo_gang"))
    assert started(alone) == {gang.id}


def test_growing_stays_where_there_are_processors() -> None:
    """It could grow to six GPUs; the other node's processors are another's."""
    other = make_job(gpus=1, holds=[2], cpu_milli=6000)
    job = make_job(holds=[0], cpu_milli=4000, max_gpus=6)
    snapshot = make_snapshot(other, job, nodes=hosts(2, 4))
    plan = plan_round(snapshot, load_policy("f_scheduling", {"min_gain": 0.0}))
    assert set(after(snapshot, plan)[job.id]) == {0, 1}
    check(snapshot, plan)


def test_whom_a_level_puts_out_is_not_in_the_way() -> None:
    low = make_job(gpus=4, holds=[0, 1, 2, 3], cpu_milli=8000, qos="low")
    high = make_job(gpus=2, cpu_milli=8000, qos="high")
    levels = {"low": Qos(0), "high": Qos(10, ("low",))}
    snapshot = make_snapshot(low, high, nodes=hosts(4), qos=levels)
    plan = plan_round(snapshot, load_policy("multifactor"))
    moves = {move.job_id: move.kind for move in plan.moves}
    assert moves.get(low.id) == "preempt"
    check(snapshot, plan)


def test_a_guarantee_takes_gpus_back_where_the_processors_come_with_them() -> None:
    borrower = make_job(gpus=4, holds=[0, 1, 2, 3], cpu_milli=2000, project="lender")
    owner = make_job(gpus=2, cpu_milli=6000, project="owner", submitted_at=0.0)
    entities = {"lender": Entity(None), "owner": Entity(None)}
    guarantees = (Guarantee("owner", 4),)
    snapshot = make_snapshot(borrower, owner, nodes=hosts(4), entities=entities, guarantees=guarantees)
    plan = plan_round(snapshot, load_policy("fifo_gang"))
    check(snapshot, plan)
    assert {move.job_id: move.kind for move in plan.moves} == {borrower.id: "preempt", owner.id: "start"}


asked = st.tuples(st.integers(0, 8), st.integers(0, 64))


@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    wants=st.lists(st.tuples(st.integers(1, 4), st.booleans(), asked), min_size=1, max_size=7),
    name=st.sampled_from(["f_scheduling", "fifo_gang", "fifo", "multifactor", "max_min_fairness"]),
)
@settings(max_examples=60, deadline=None)
def test_no_node_is_ever_asked_for_more_than_it_has(
    sizes: list[int], wants: list[tuple[int, bool, tuple[int, int]]], name: str
) -> None:
    """Round after round, from nothing on."""
    jobs: list[Job] = [
        make_job(min_gpus=gpus, max_gpus=None if grows else gpus, cpu_milli=1000 * cpus, memory_mib=GIB * memory)
        for gpus, grows, (cpus, memory) in wants
    ]
    snapshot = make_snapshot(*jobs, nodes=hosts(*sizes))
    for _ in range(3):
        plan = plan_round(snapshot, load_policy(name))
        check(snapshot, plan)
        held = after(snapshot, plan)
        snapshot = replace(
            snapshot,
            now=snapshot.now + 1000,
            memory=plan.memory,
            jobs=tuple(_with(job, held[job.id]) for job in snapshot.jobs),
        )


def _with(job: Job, gpus: tuple[int, ...]) -> Job:
    holding = make_job(holds=gpus) if gpus else make_job()
    return replace(job, gpu_ids=gpus, gang=holding.gang, state=holding.state, has_trained=bool(gpus))


@in_turn("name", ["first_fit", "dqn_gpu"])
def test_a_gang_over_nodes_asks_for_its_processors_on_each_of_them_under_packing_too(name: str) -> None:
    nodes = tuple(replace(node, cpu_milli=32_000, memory_mib=None) for node in hosts(4, 4))
    large = make_job(gpus=8, cpu_milli=32_001, curve=make_curve(*range(1, 9)))
    assert plan_round(make_snapshot(large, nodes=nodes), load_policy(name)).reasons[large.id].token == "never"
    gang = make_job(gpus=8, cpu_milli=32_000, curve=make_curve(*range(1, 9)))
    idle, busy = make_snapshot(gang, nodes=nodes), make_snapshot(gang, make_job(gpus=1, holds=[0]), nodes=nodes)
    assert started(plan_round(idle, load_policy(name))) == {gang.id}
    assert plan_round(busy, load_policy(name)).reasons[gang.id].token == "resources"
    assert Reach(busy).why_not(gang) == ""


@in_turn("name", ["first_fit", "fifo_gang", "multifactor", "dqn_gpu"])
def test_too_few_nodes_with_the_processors_of_a_gang_are_said_to_be_never_enough(name: str) -> None:
    """One of the two, of eight GPUs each, has as many as it asks for of each."""
    small, large = hosts(8, 8)
    nodes: tuple[Node, ...] = (small, replace(large, cpu_milli=64_000))
    gang, fits = (make_job(gpus=n, cpu_milli=32_000, curve=make_curve(*range(1, 17))) for n in (16, 8))
    told = plan_round(make_snapshot(gang, nodes=nodes), load_policy(name)).reasons[gang.id]
    assert told.token == "never"
    assert "It needs at least 16 × titan_xp, and nodes with what it asks for of each have 8" in told.text
    assert Reach(make_snapshot(gang, nodes=nodes)).why_not(gang) == "never"
    assert started(plan_round(make_snapshot(fits, nodes=nodes), load_policy(name))) == {fits.id}
    first, *others = hosts(8, 4, 4)
    nodes = (first, *(replace(node, cpu_milli=64_000) for node in others))
    single = make_snapshot(fits, nodes=nodes, settings={"multi_node": False})
    told = plan_round(single, load_policy(name)).reasons[fits.id]
    assert "8 × titan_xp on one node, and nodes with what it asks for of each have 4" in told.text
    assert Reach(single).why_not(fits) == "never"


@in_turn("name", ["first_fit", "fifo_gang", "multifactor", "dqn_gpu"])
def test_a_node_that_is_too_small_for_a_gang_keeps_it_from_no_others(name: str) -> None:
    """The largest has GPUs for all of it, but few processors."""
    large, *others = hosts(16, 8, 8)
    nodes = (large, *(replace(node, cpu_milli=64_000) for node in others))
    gang = make_job(gpus=16, cpu_milli=32_000, curve=make_curve(*range(1, 17)))
    [move] = plan_round(make_snapshot(gang, nodes=nodes), load_policy(name)).moves
    assert set(move.gpu_ids) == {gpu for node in others for gpu in node.gpu_ids}


@in_turn("name", ["first_fit", "dqn_gpu"])
def test_a_gang_over_nodes_is_told_what_they_have_free_together(name: str) -> None:
    nodes = hosts(8, 8)
    gang, busy = make_job(gpus=12, cpu_milli=4_000, curve=make_curve(*range(1, 17))), make_job(gpus=1, holds=[8])
    hungry = replace(busy, cpu_milli=6_000)
    said = [
        plan_round(make_snapshot(gang, one, *more, nodes=nodes), load_policy(name)).reasons.get(gang.id)
        for one, more in ((hungry, ()), (busy, [make_job(gpus=4, holds=range(4))]))
    ]
    free = [8, 11]
    for reason, count in zip(said, free, strict=True):
        assert reason is not None
        assert reason.token == "resources"
        assert f"nodes with the processors and the memory that it asks for of each have {count} of one" in reason.text


@in_turn("name", ["first_fit", "fifo_gang", "multifactor", "dqn_gpu"])
def test_a_large_node_that_is_maintained_is_not_said_not_to_exist(name: str) -> None:
    small, large = hosts(2, 2)
    job, now = make_job(gpus=1, cpu_milli=16_000), make_snapshot().now
    window = Window("w", frozenset({large.name}), now - 10.0, now + 1_000.0)
    snapshot = replace(make_snapshot(job, nodes=(small, replace(large, cpu_milli=64_000))), windows=(window,))
    reason = plan_round(snapshot, load_policy(name)).reasons[job.id]
    assert (reason.token, "now" in reason.text) == ("too_large", True)


def test_the_reason_is_of_the_gang_that_some_node_is_large_enough_for() -> None:
    """One GPU of the first type would do, on a node with more processors; two of the second are on such a one."""
    a, b = make_nodes(1), make_nodes(2, type="v100", first_id=1)
    nodes = (replace(a[0], cpu_milli=8_000), replace(b[0], cpu_milli=64_000))
    curves = {"titan_xp": make_curve(1.0, 2.0), "v100": make_curve(0.0, 3.0)}
    job = make_job(min_gpus=1, max_gpus=2, cpu_milli=16_000, curves=curves)
    assert started(plan_round(make_snapshot(job, nodes=nodes), load_policy("first_fit"))) == {job.id}
    busy = make_job(gpus=1, holds=[1], type="v100")
    assert (
        plan_round(make_snapshot(busy, job, nodes=nodes), load_policy("first_fit")).reasons[job.id].token == "resources"
    )


def test_too_little_gpu_memory_anywhere_is_said_as_that() -> None:
    nodes = [replace(node, gpu_memory_mib=24 * GIB) for node in hosts(4)]
    for name in ("first_fit", "fifo_gang", "f_scheduling"):
        job = make_job(gpus=1, gpu_memory_mib=40 * GIB)
        reason = plan_round(make_snapshot(job, nodes=nodes), load_policy(name)).reasons[job.id]
        assert "It asks for 40 GiB of GPU memory and no node that it may use has more than 24 GiB" in reason.text
