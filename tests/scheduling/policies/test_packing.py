"""Packing policies: who is put on which device, beside whom."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduling.capacity.node_capacity import Demand, NodeCapacity
from scheduling.domain import WHOLE, Curve, Guarantee, Job, Limit, Node, Snapshot, Window
from scheduling.engine.explain.unschedulable import could_hold
from scheduling.engine.rounds import plan_round
from scheduling.errors import InvalidParameters
from scheduling.policies import load_policy
from scheduling.policies.base import Policy
from scheduling.policies.packing.fragmentation import Classes, fragmentation
from scheduling.policies.packing.genetic_fitness import FitnessTrial
from tests.builders import make_curve, make_job, make_nodes, make_snapshot
from tests.cases import in_turn

PACKING = ("first_fit", "best_fit", "round_robin", "tetris", "fgd", "genetic", "packing_exact")


def node(name: str, gpus: int, first: int, **changes: Any) -> Node:
    values: dict[str, Any] = {"cpu_milli": 32_000, "memory_mib": 131_072, "gpu_memory_mib": 16_384}
    return replace(make_nodes(gpus, first_id=first)[0], name=name, **(values | changes))


def part(milli: int, **changes: Any) -> Job:
    return make_job(gpus=1, gpu_milli=milli, **changes)


def placed(policy: str, snapshot: Snapshot) -> dict[str, tuple[int, ...]]:
    plan = plan_round(snapshot, load_policy(policy, {}))
    assert "solver_failed" not in plan.figures, plan.reasons
    return {move.job_id: move.gpu_ids for move in plan.moves}


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    firsts = np.cumsum([0, *sizes]).tolist()
    nodes = [
        node(f"n{i}", size, first, cpu_milli=draw(st.sampled_from([None, 4_000, 16_000])))
        for i, (size, first) in enumerate(zip(sizes, firsts, strict=False))
    ]
    jobs = []
    for number in range(1, draw(st.integers(1, 12)) + 1):
        milli = draw(st.sampled_from([100, 250, 460, 500, WHOLE, WHOLE]))
        gpus = draw(st.integers(1, 4)) if milli == WHOLE else 1
        demand: dict[str, Any] = {
            "cpu_milli": draw(st.sampled_from([0, 2_000, 6_000])),
            "memory_mib": draw(st.sampled_from([0, 65_536])),
        }
        jobs.append(make_job(number=number, gpus=gpus, gpu_milli=milli, gpu_memory_mib=8_000, **demand))
    return make_snapshot(*jobs, nodes=nodes)


@pytest.mark.parametrize("name", PACKING)
@settings(max_examples=40, deadline=None)
@given(snapshot=snapshots())
def test_nothing_is_given_twice_and_no_job_waits_that_fits(name: str, snapshot: Snapshot) -> None:
    gpus = placed(name, snapshot)
    jobs, place = {job.id: job for job in snapshot.jobs}, {g: n for n in snapshot.nodes for g in n.gpu_ids}
    shares, memory = Counter[int](), Counter[int]()
    cpu, ram = Counter[str](), Counter[str]()
    for key, ids in gpus.items():
        job = jobs[key]
        assert len(ids) == len(set(ids)) == job.min_gpus
        widest = max(len(one.gpu_ids) for one in snapshot.nodes if could_hold(job, one))
        there = {place[gpu].name for gpu in ids}
        assert len(there) == 1 or job.min_gpus > widest
        for gpu in ids:
            shares[gpu] += job.gpu_milli
            memory[gpu] += job.gpu_memory_mib
        for host in there:
            cpu[host] += job.cpu_milli
            ram[host] += job.memory_mib
    assert all(share <= WHOLE for share in shares.values())
    for one in snapshot.nodes:
        assert one.cpu_milli is None or cpu[one.name] <= one.cpu_milli
        assert ram[one.name] <= (one.memory_mib or 0)
        assert all(memory[gpu] <= (one.gpu_memory_mib or 0) for gpu in one.gpu_ids)
    running = [replace(job, gpu_ids=gpus[job.id]) for job in snapshot.jobs if job.id in gpus]
    node_capacity = NodeCapacity(snapshot, running)
    assert all(not len(node_capacity.fitting(Demand.of(job))) for job in snapshot.jobs if job.id not in gpus)


@in_turn(("name", "expected"), [("first_fit", (0,)), ("best_fit", (2,)), ("round_robin", (0,)), ("fgd", (2,))])
def test_a_part_goes_where_the_policy_says(name: str, expected: tuple[int, ...]) -> None:
    """Of two nodes the second has a device with a half free: who packs tightly takes that."""
    nodes = [node("a", 2, 0), node("b", 2, 2)]
    there = part(500, holds=(2,))
    new = part(500)
    assert placed(name, make_snapshot(there, new, nodes=nodes)) == {new.id: expected}


def test_in_turns_nodes_follow_each_other_over_rounds() -> None:
    nodes, policy = [node("a", 2, 0), node("b", 2, 2)], load_policy("round_robin", {})
    one, two = part(100), part(100)
    first = plan_round(make_snapshot(one, nodes=nodes), policy)
    assert first.moves[0].gpu_ids == (0,)
    second = plan_round(make_snapshot(two, nodes=nodes, memory=dict(first.memory)), policy)
    assert second.moves[0].gpu_ids == (2,)


def test_fragments_are_what_no_usual_job_can_use() -> None:
    """Two devices with 600 and 300 free: to halves the 300 are scraps, to a whole job all is, to quarters nothing."""
    snapshot = make_snapshot(part(400, holds=(0,)), part(700, holds=(1,)), nodes=[node("a", 2, 0)])
    node_capacity = NodeCapacity(snapshot, snapshot.jobs)

    def lost(**often: float) -> float:
        demands = {"half": 500, "whole": WHOLE, "quarter": 250}
        counted = {Demand.of(part(demands[name])): times for name, times in often.items()}
        return fragmentation(node_capacity, Classes.of(counted, node_capacity.types))

    assert lost(half=1.0) == 300
    assert lost(whole=1.0) == 900
    assert lost(quarter=1.0) == 0
    assert lost(half=1.0, whole=1.0, quarter=2.0) == (300 + 900) / 4


def test_the_gradient_spares_what_whole_jobs_need() -> None:
    """A quarter goes beside a half rather than onto a device that jobs of a whole one come for."""
    nodes = [node("a", 2, 0), node("b", 2, 2)]
    there, new = part(500, holds=(3,)), part(250)
    usual = [make_job(gpus=1) for _ in range(3)]
    gpus = placed("fgd", make_snapshot(there, new, *usual, nodes=nodes))
    assert gpus[new.id] == (3,)
    assert {gpus[job.id] for job in usual} == {(0,), (1,), (2,)}


def test_tetris_follows_the_demand() -> None:
    """Hungry for processors: to the node with most of them free; little work goes first."""
    nodes = [node("a", 1, 0, cpu_milli=8_000), node("b", 1, 1, cpu_milli=8_000)]
    busy = part(100, holds=(0,), cpu_milli=6_000)
    hungry = part(100, cpu_milli=2_000)
    assert placed("tetris", make_snapshot(busy, hungry, nodes=nodes)) == {hungry.id: (1,)}
    long, short = make_job(gpus=1, remaining_steps=9e9), make_job(gpus=1, remaining_steps=10.0)
    assert placed("tetris", make_snapshot(long, short, nodes=[node("a", 1, 0)])) == {short.id: (0,)}


# Decided together ---------------------------------------------------------------------------------------


def test_the_exact_program_leaves_no_gpu_idle_that_could_be_filled() -> None:
    """First fit puts the two small ones first, on one device, and the two large ones have no room together."""
    jobs = [part(300, number=1), part(400, number=2), part(700, number=3), part(600, number=4)]
    nodes = [node("a", 2, 0)]
    assert len(placed("first_fit", make_snapshot(*jobs, nodes=nodes))) == 3
    exact = placed("packing_exact", make_snapshot(*jobs, nodes=nodes))
    assert len(exact) == 4


@settings(max_examples=25, deadline=None)
@given(snapshot=snapshots())
def test_no_job_places_more_than_the_exact_program(snapshot: Snapshot) -> None:
    def taken(name: str) -> int:
        milli = {job.id: job.gpu_milli for job in snapshot.jobs}
        nodes = {gpu: node.name for node in snapshot.nodes for gpu in node.gpu_ids}
        # Gangs over several nodes, which processors may ask for, too, are no part of its program.
        one_node = {key: ids for key, ids in placed(name, snapshot).items() if len({nodes[gpu] for gpu in ids}) == 1}
        return sum(len(ids) * milli[key] for key, ids in one_node.items())

    widest = max(len(one.gpu_ids) for one in snapshot.nodes)
    narrow = [job for job in snapshot.jobs if job.min_gpus <= widest]
    snapshot = replace(snapshot, jobs=tuple(narrow))
    best = taken("packing_exact")
    assert all(taken(name) <= best for name in PACKING)


def test_beyond_its_size_the_exact_policy_is_best_fit() -> None:
    jobs = [part(300, number=1), part(400, number=2), part(700, number=3), part(600, number=4)]
    snapshot = make_snapshot(*jobs, nodes=[node("a", 2, 0)])
    plan = plan_round(snapshot, load_policy("packing_exact", {"most_cells": 7}))
    assert [m.gpu_ids for m in plan.moves] == [m.gpu_ids for m in plan_round(snapshot, load_policy("best_fit")).moves]
    assert plan.figures["solver_failed"] == 1.0  # simulations count it
    exact = plan_round(snapshot, load_policy("packing_exact", {"most_cells": 8}))
    assert "solver_failed" not in exact.figures


@settings(max_examples=25, deadline=None)
@given(snapshot=snapshots(), data=st.data())
def test_a_trial_is_what_booking_one_after_the_other_comes_to(snapshot: Snapshot, data: st.DataObject) -> None:
    node_capacity, demands = NodeCapacity(snapshot, ()), [Demand.of(job) for job in snapshot.jobs]
    rows = np.arange(len(node_capacity.nodes))
    trial = FitnessTrial(node_capacity, demands, rows)
    guess = st.lists(st.integers(-1, len(rows) - 1), min_size=len(demands), max_size=len(demands))
    guesses = np.array(data.draw(st.lists(guess, min_size=1, max_size=4)), dtype=np.int64)
    found = trial.placed(guesses)
    for tried, fits in zip(guesses.tolist(), found.tolist(), strict=True):
        copy = node_capacity.copy()
        for demand, row, fit in zip(demands, tried, fits, strict=True):
            assert fit == (row in copy.fitting(demand))
            if fit:
                copy.book(demand, copy.tightest(row, demand))


@in_turn("mode", ["assignment", "pair"])
@in_turn("mutation", ["paper", "usual"])
def test_the_genetic_search_finds_what_fits_together(mode: str, mutation: str) -> None:
    """Four jobs that fill two devices only as 300 with 700 and 400 with 600; the one that is larger than the rest of
    any device is what `pair` takes first."""
    jobs = [part(milli, number=n) for n, milli in enumerate((300, 400, 700, 600), 1)]
    policy = load_policy("genetic", {"mode": mode, "mutation": mutation})
    plan = plan_round(make_snapshot(*jobs, nodes=[node("a", 1, 0), node("b", 1, 1)]), policy)
    assert len(plan.moves) == 4


def test_the_genetic_search_is_seeded_and_leaves_the_generators_of_others_alone() -> None:
    jobs = [part(milli, number=n) for n, milli in enumerate((300, 250, 700, 600, 100, 450, 500), 1)]
    nodes = [node("a", 2, 0), node("b", 2, 2)]

    def moves(seed: int) -> list[tuple[str, tuple[int, ...]]]:
        plan = plan_round(make_snapshot(*jobs, nodes=nodes, seed=seed), load_policy("genetic"))
        return [(move.job_id, move.gpu_ids) for move in plan.moves]

    random.seed(7)
    np.random.seed(7)
    expected = random.Random(7).random(), np.random.RandomState(7).random()
    assert moves(1) == moves(1)
    assert (random.random(), np.random.random()) == expected
    assert len({str(moves(seed)) for seed in range(4)}) > 1


def test_the_genetic_search_ends_when_its_time_is_up() -> None:
    jobs = [part(300, number=n) for n in range(1, 41)]
    settings = {"generations": 100_000, "time_limit_s": 0.2}
    plan = plan_round(make_snapshot(*jobs, nodes=[node("a", 8, 0)]), load_policy("genetic", settings))
    assert len(plan.moves) == 24


# Edges --------------------------------------------------------------------------------------------------


@in_turn("name", ["first_fit", "best_fit", "round_robin", "tetris", "fgd"])
def test_strictly_in_order_no_job_passes(name: str) -> None:
    wide, small = make_job(gpus=4, number=1), make_job(gpus=1, number=2)
    busy = make_job(gpus=1, holds=(0,), number=3)
    snapshot = make_snapshot(busy, wide, small, nodes=[node("a", 4, 0)])
    assert placed(name, snapshot).keys() == {small.id}
    plan = plan_round(snapshot, load_policy(name, {"strict": True}))
    assert plan.moves == ()
    assert plan.reasons[small.id].token == "behind"


@in_turn("name", ["genetic", "packing_exact"])
def test_what_is_decided_together_has_no_order(name: str) -> None:
    with pytest.raises(InvalidParameters):
        load_policy(name, {"strict": True})


def test_in_turns_every_node_has_its_turn_whatever_its_name() -> None:
    nodes, memory = [node(f"n-{i}", 1, i) for i in range(12)], dict[str, Any]()
    given = list[int]()
    for number in range(1, 13):
        plan = plan_round(make_snapshot(part(1, number=number), nodes=nodes, memory=memory), load("round_robin"))
        given += [gpu for move in plan.moves for gpu in move.gpu_ids]
        memory = dict(plan.memory)
    assert sorted(given) == list(range(12))


@in_turn("name", PACKING)
def test_a_larger_gang_on_another_type_starts_where_the_smallest_has_no_room(name: str) -> None:
    nodes = [replace(node("a", 4, 0), type="a"), replace(node("b", 1, 4), type="b")]
    busy = make_job(holds=(4,), type="b", gpus=1)
    job = make_job(min_gpus=1, max_gpus=4, curves={"a": Curve((0.0, 5.0)), "b": Curve((3.0,))})
    assert placed(name, make_snapshot(busy, job, nodes=nodes)) == {job.id: (0, 1)}


def test_best_fit_leaves_the_least_of_the_nodes_own_capacity() -> None:
    """Half of either node is free, and after it nothing of the smaller."""
    large, small = node("a", 8, 0, cpu_milli=None, memory_mib=None), node("b", 2, 8, cpu_milli=None, memory_mib=None)
    busy = [make_job(gpus=4, holds=(0, 1, 2, 3)), make_job(gpus=1, holds=(8,))]
    job = make_job(gpus=1)
    assert placed("best_fit", make_snapshot(*busy, job, nodes=[large, small])) == {job.id: (9,)}


def test_a_gang_wider_than_every_node_takes_of_each_what_it_asks_for() -> None:
    nodes = [node("a", 8, 0, cpu_milli=64_000), node("b", 8, 8, cpu_milli=64_000)]
    wide = make_job(gpus=14, cpu_milli=40_000)
    assert placed("first_fit", make_snapshot(wide, nodes=nodes)) == {wide.id: tuple(range(14))}
    hungry = make_job(gpus=16, cpu_milli=65_000)
    assert placed("first_fit", make_snapshot(hungry, nodes=nodes)) == {}
    runs = make_job(gpus=14, cpu_milli=40_000, holds=tuple(range(14)))
    small, large = make_job(gpus=1, cpu_milli=24_000), make_job(gpus=1, cpu_milli=24_001)
    assert placed("first_fit", make_snapshot(runs, small, nodes=nodes)) == {small.id: (14,)}
    assert placed("first_fit", make_snapshot(runs, large, nodes=nodes)) == {}


def test_a_gang_waits_for_a_node_that_is_large_enough() -> None:
    sizes = {"a": (8, 0), "b": (4, 8), "c": (4, 12)}
    nodes = [replace(node(name, *size), type="a" if name == "a" else "b") for name, size in sizes.items()]
    busy = make_job(gpus=1, holds=(0,), type="a")
    job = make_job(gpus=8, curves={"a": make_curve(), "b": make_curve()})
    assert placed("first_fit", make_snapshot(busy, job, nodes=nodes)) == {}


@in_turn("name", ["genetic", "packing_exact"])
def test_jobs_that_a_limit_bars_take_no_place_in_the_search(name: str) -> None:
    limits = {"k": Limit("gpus", 0, level="project Vision")}
    barred = [make_job(gpus=1, number=n, limits=("k",)) for n in range(1, 60)]
    free = [part(milli, number=100 + n) for n, milli in enumerate((300, 400, 700, 600))]
    gpus = placed(name, make_snapshot(*barred, *free, nodes=[node("a", 1, 0), node("b", 1, 1)], limits=limits))
    assert gpus.keys() == {job.id for job in free}


@in_turn("name", PACKING)
def test_guarantees_take_nothing_back_where_gpus_are_shared(name: str) -> None:
    borrowers = [part(500, holds=(0,), project="vision") for _ in range(2)]
    owner = make_job(gpus=1, project="speech")
    guarantees = (Guarantee("speech", 1, level="project Speech"),)
    plan = plan_round(make_snapshot(*borrowers, owner, nodes=[node("a", 1, 0)], guarantees=guarantees), load(name))
    assert plan.moves == ()
    assert "solver_failed" not in plan.figures


def test_the_gradient_knows_its_classes_by_the_types_own_names() -> None:
    """Under windows policies see pools of nodes under other names, which change."""
    jobs = [part(250, number=n) for n in range(1, 4)]
    first = plan_round(make_snapshot(*jobs, nodes=[node("a", 4, 0)]), load("fgd"))
    window = Window("w", frozenset({"b"}), 1_100.0, 2_000.0)
    nodes = [node("a", 4, 0), node("b", 4, 4)]
    late = make_snapshot(part(250, number=9), nodes=nodes, memory=dict(first.memory), windows=(window,))
    kept = plan_round(late, load("fgd")).memory["packing"]["classes"]
    assert [types for (*_, types), _ in kept] == [["titan_xp"]]
    assert kept[0][1] > 3.9


def test_the_gradient_counts_each_job_once_in_whatever_order_numbers_come() -> None:
    early = plan_round(make_snapshot(part(250, number=7, submitted_at=1.0), nodes=[node("a", 4, 0)]), load("fgd"))
    both = make_snapshot(
        part(250, number=7, submitted_at=1.0),
        part(250, number=3, submitted_at=2.0),
        nodes=[node("a", 4, 0)],
        memory=dict(early.memory),
    )
    (((*_, _types), times),) = plan_round(both, load("fgd")).memory["packing"]["classes"]
    assert 1.9 < times <= 2.0


def load(name: str) -> Policy:
    return load_policy(name, {})


@in_turn("name", ["first_fit", "tetris", "fgd", "dqn_gpu"])
def test_a_job_that_waits_is_told_what_there_is_too_little_of(name: str) -> None:
    """The share, the GPU memory, the types, what the node has beside."""
    node = replace(make_nodes(2)[0], gpu_memory_mib=12_288, cpu_milli=8_000, memory_mib=65_536)
    other = replace(make_nodes(1, type="v100", first_id=2)[0], gpu_memory_mib=16_384)
    holds = [
        make_job(gpus=1, gpu_milli=500, gpu_memory_mib=7_168, holds=(0,), cpu_milli=6_000),
        make_job(gpus=1, gpu_milli=900, gpu_memory_mib=1_024, holds=(1,)),
    ]

    def said(**asked: Any) -> str:
        job = make_job(gpus=1, **asked)
        return plan_round(make_snapshot(*holds, job, nodes=(node, other)), load_policy(name)).reasons[job.id].text

    titan = {"types": ("titan_xp",)}
    assert said(gpu_milli=700, **titan) == "No titan_xp has 70 % free."
    assert said(gpu_milli=250, gpu_memory_mib=6_144, **titan) == (
        "Where 25 % of a titan_xp is free it takes 6 GiB of GPU memory, and at most 5 GiB of it is left, "
        f"on {node.name}."
    )
    assert said(**titan) == "No node has 1 \N{MULTIPLICATION SIGN} titan_xp free."
    assert said(gpu_milli=250, cpu_milli=5_000, **titan) == (
        "Nodes with 25 % of a titan_xp free have at most 2 processors where it asks for 5 processors."
    )
