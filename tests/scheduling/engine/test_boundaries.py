"""Limits, excluded GPUs, reservations, leases and shared GPUs exactly at their boundaries."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scheduling.capacity.cluster_view import view
from scheduling.capacity.free_capacity import FreeCapacity
from scheduling.capacity.quota_headroom import QuotaHeadroom, exceeds_quota, trim_to_quota
from scheduling.domain import Allocation, Curve, Gang, Guarantee, Job, Limit, Snapshot
from scheduling.engine import ask_policy, enforce_quota
from scheduling.engine.placement.choose_gpus import Board, Request, lay_out
from scheduling.engine.reclaim.reasons import ReclaimGrant
from scheduling.engine.reclaim.reclaim import _VictimSearch
from scheduling.engine.rounds import plan_round
from scheduling.engine.time_sharing import rounds as timesharing
from scheduling.engine.time_sharing.allocation_builder import AllocationBuilder
from scheduling.engine.time_sharing.shares_ledger import TimeShareState
from scheduling.lifecycle import State
from scheduling.policies import load_policy
from scheduling.policies.queue.backfill import Backfill
from scheduling.simulator.engine import Engine
from scheduling.simulator.inputs.trace import Cluster as SimulatedCluster
from scheduling.simulator.inputs.trace import TraceJob
from scheduling.simulator.meter import Meter
from scheduling.simulator.outcome import Options
from tests.builders import make_curve, make_job, make_nodes, make_snapshot
from tests.cases import in_turn
from tests.scheduling.engine.test_timesharing import ROUND_S, Cluster

# Limits ----------------------------------------------------------------------------------------------------


def limited_to(most: int, *jobs: Job, kind: Any = "gpus", type: str | None = None, **more: Any) -> Snapshot:
    limits = {"l": Limit(kind, most, type=type, level="project Speech")}
    return make_snapshot(*(replace(job, limits=("l",)) for job in jobs), limits=limits, **more)


@in_turn(
    ("most", "count", "passed"),
    [(4, 4, False), (4, 5, True), (2, 4, False), (2, 3, False), (2, 5, True), (5, 5, False), (5, 6, True)],
)
def test_a_limit_is_passed_by_more_than_it_is_already(most: int, count: int, passed: bool) -> None:
    snapshot = limited_to(most, make_job(holds=(0, 1, 2, 3)))
    (job,) = snapshot.jobs
    assert exceeds_quota(view(snapshot), {job.id: Gang("titan_xp", count)}) == passed


@in_turn(("most", "passed"), [(1, True), (2, False), (3, False)])
def test_a_limit_of_jobs_counts_jobs(most: int, passed: bool) -> None:
    snapshot = limited_to(most, make_job(holds=(0, 1, 2)), make_job(gpus=1), kind="running_jobs")
    assert exceeds_quota(view(snapshot), {job.id: Gang("titan_xp", 1) for job in snapshot.jobs}) == passed


def test_a_limit_of_one_type_leaves_the_other() -> None:
    nodes = (*make_nodes(4, type="a"), *make_nodes(4, type="b", first_id=4))
    snapshot = limited_to(2, make_job(curve=make_curve()), type="a", nodes=nodes)
    (job,) = snapshot.jobs
    field = view(snapshot)
    assert exceeds_quota(field, {job.id: Gang("a", 3)})
    assert not exceeds_quota(field, {job.id: Gang("a", 2)})
    assert not exceeds_quota(field, {job.id: Gang("b", 4)})
    headroom = QuotaHeadroom(field)
    assert (headroom.most(job, "a"), headroom.most(job, "b") > 10**9) == (2, True)


@in_turn(("most", "gpus"), [(0, 0), (1, 0), (2, 2), (3, 3), (6, 6)])
def test_a_plan_is_cut_down_to_the_limit_and_not_below_the_least_gang(most: int, gpus: int) -> None:
    snapshot = limited_to(most, make_job(min_gpus=2, max_gpus=6))
    (job,) = snapshot.jobs
    kept, reasons = trim_to_quota(view(snapshot), {job.id: Gang("titan_xp", 6)})
    assert kept.get(job.id, Gang("titan_xp", 0)).count == gpus
    assert (job.id in reasons) == (gpus == 0)


def test_a_job_that_runs_keeps_what_it_has_where_growth_and_starts_are_cut() -> None:
    runs, waits = make_job(holds=(0, 1, 2)), make_job(gpus=1)
    snapshot = limited_to(3, runs, waits)
    counts = {runs.id: Gang("titan_xp", 5), waits.id: Gang("titan_xp", 1)}
    kept, reasons = trim_to_quota(view(snapshot), counts)
    assert kept == {runs.id: Gang("titan_xp", 3)}
    assert reasons[waits.id].token == "quota"
    kept, _ = trim_to_quota(view(snapshot), {runs.id: Gang("titan_xp", 2), waits.id: Gang("titan_xp", 1)})
    assert kept == {runs.id: Gang("titan_xp", 2), waits.id: Gang("titan_xp", 1)}


def test_limits_have_the_last_word_whatever_a_step_before_let_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(enforce_quota, "trim_to_quota", lambda field, counts: (dict(counts), {}))
    monkeypatch.setattr(ask_policy, "_answer", lambda snapshot, policy: Allocation(counts=wanted(snapshot)))
    snapshot = limited_to(4, make_job(holds=(0, 1)), make_job(gpus=3))
    plan = plan_round(snapshot, load_policy("f_scheduling", {}))
    assert plan.moves == ()
    assert plan.rejected is not None
    assert "limit" in plan.rejected or "quota" in plan.rejected
    assert plan_round(replace(snapshot, limits={}), load_policy("f_scheduling", {})).moves


def wanted(snapshot: Snapshot) -> dict[str, Gang]:
    return {job.id: job.gang or Gang("titan_xp", job.min_gpus) for job in snapshot.jobs}


@in_turn("name", ["f_scheduling", "fifo_gang", "multifactor"])
@in_turn(("most", "started"), [(3, False), (4, True)])
def test_a_job_starts_at_exactly_the_limit_and_not_beyond(name: str, most: int, started: bool) -> None:
    snapshot = limited_to(most, make_job(gpus=2, holds=(0, 1)), make_job(gpus=2))
    plan = plan_round(snapshot, load_policy(name, {}))
    assert any(move.kind == "start" for move in plan.moves) == started


def test_a_taking_that_fails_leaves_limits_and_gpus_as_they_were() -> None:
    nodes = make_nodes(2, 2)
    borrowers = [make_job(gpus=1, holds=(gpu,), project="vision") for gpu in (0, 2)]
    rigid = [make_job(gpus=1, holds=(gpu,), project="vision", restartable=False) for gpu in (1, 3)]
    owner = make_job(gpus=2, project="speech")
    row = Guarantee("speech", 2)
    snapshot = limited_to(3, *borrowers, *rigid, owner, nodes=nodes, guarantees=(row,), settings={"multi_node": False})
    *first, _, _, last = snapshot.jobs
    taker = _VictimSearch(snapshot, view(snapshot), load_policy("fifo_gang", {}))
    left, free = dict(taker.free_capacity.headroom.left), [list(gpus) for gpus in taker.board.free]
    assert not taker._take(ReclaimGrant(last, Gang("titan_xp", 2), (), row, tuple(first)))
    assert taker.free_capacity.headroom.left == left
    assert [list(gpus) for gpus in taker.board.free] == free
    assert taker.found.grants == []
    beside = [replace(borrowers[0], gpu_ids=(0,)), replace(rigid[0], gpu_ids=(1,), restartable=True)]
    roomy = limited_to(3, *beside, owner, nodes=make_nodes(2), guarantees=(row,), settings={"multi_node": False})
    taker = _VictimSearch(roomy, view(roomy), load_policy("fifo_gang", {}))
    assert taker._take(ReclaimGrant(roomy.jobs[-1], Gang("titan_xp", 2), (), row, roomy.jobs[:2]))
    assert (taker.free_capacity.headroom.left["l"], taker.found.grants[0].gpus) == (1, (0, 1))


# Placement -------------------------------------------------------------------------------------------------


def test_a_job_that_runs_on_an_excluded_gpu_may_stay_and_gets_no_other() -> None:
    job = make_job(holds=(0, 1), excluded_gpus=frozenset({0, 2}))
    board = Board(make_nodes(4))
    assert board.place(Request(job, Gang("titan_xp", 3), (0, 1))) == (0, 1, 3)
    assert board.free == [[2]]
    board = Board(make_nodes(4))
    assert board.place(Request(replace(job, gpu_ids=(), gang=None), Gang("titan_xp", 2))) == (1, 3)
    assert board.place(Request(job, Gang("titan_xp", 1))) is None
    assert board.free == [[0, 2]]


@in_turn(("gpus", "placed"), [(3, (0, 1, 2)), (4, None)])
def test_excluded_gpus_come_back_on_the_board_whatever_becomes_of_the_gang(
    gpus: int, placed: tuple[int, ...] | None
) -> None:
    board = Board(make_nodes(4))
    job = make_job(gpus=gpus, excluded_gpus=frozenset({3, 99}))
    assert board.place(Request(job, Gang("titan_xp", gpus))) == placed
    assert board.free == [[gpu for gpu in range(4) if gpu not in (placed or ())]]


@in_turn(
    ("multi_node", "count", "placed"),
    [(True, 2, (0, 1)), (True, 3, (0, 1, 2)), (True, 5, None), (False, 2, (0, 1)), (False, 3, None)],
)
def test_a_gang_spans_nodes_only_where_it_may(multi_node: bool, count: int, placed: tuple[int, ...] | None) -> None:
    board = Board(make_nodes(2, 2))
    assert board.place(Request(make_job(gpus=count), Gang("titan_xp", count)), multi_node=multi_node) == placed
    assert board.place(Request(make_job(gpus=1), Gang("other", 1))) is None


def test_the_tightest_node_with_room_is_chosen_and_the_nearest_gpus() -> None:
    board = Board(make_nodes(4, 4), taken=(4, 5))
    assert board.place(Request(make_job(gpus=2), Gang("titan_xp", 2))) == (6, 7)
    assert board.place(Request(make_job(holds=(2,)), Gang("titan_xp", 2), (2,))) in ((1, 2), (2, 3))
    board = Board(make_nodes(6), taken=(4,))
    assert board.place(Request(make_job(holds=(5,)), Gang("titan_xp", 2), (5,))) == (3, 5)


def test_who_shrinks_leaves_the_node_with_least_first_and_keeps_the_lower_half() -> None:
    board = Board(make_nodes(4, 4))
    job = make_job(holds=(1, 4, 5, 6))
    assert board.place(Request(job, Gang("titan_xp", 3), (1, 4, 5, 6))) == (4, 5, 6)
    board = Board(make_nodes(4))
    assert board.place(Request(make_job(holds=(0, 1, 2, 3)), Gang("titan_xp", 2), (0, 1, 2, 3))) == (0, 1)


@in_turn(("least", "gpus"), [(0, None), (3, None), (2, 2), (1, 2)])
def test_a_gang_that_does_not_fit_is_laid_out_smaller_down_to_its_least(least: int, gpus: int | None) -> None:
    job = make_job(min_gpus=1)
    placed = lay_out(Board(make_nodes(2)), [Request(job, Gang("titan_xp", 4), (), least)])
    assert (len(placed[job.id]) if job.id in placed else None) == gpus


def test_who_cannot_grow_keeps_what_it_holds_and_large_gangs_come_before_small_ones() -> None:
    grows, large, small = make_job(holds=(0,)), make_job(gpus=2), make_job(gpus=1)
    requests = [
        Request(small, Gang("titan_xp", 1)),
        Request(large, Gang("titan_xp", 2)),
        Request(grows, Gang("titan_xp", 4), (0,)),
    ]
    placed = lay_out(Board(make_nodes(3), taken=(0,)), requests)
    assert (placed[grows.id], placed.get(large.id), small.id in placed) == ((0,), (1, 2), False)
    board = Board(make_nodes(3), taken=(0,))
    placed = lay_out(board, [requests[0], requests[1], Request(grows, Gang("titan_xp", 1), (0,))])
    assert (placed[large.id], small.id in placed) == ((1, 2), False)


# Backfill --------------------------------------------------------------------------------------------------


def backfill(snapshot: Snapshot, kind: Any = "easy") -> Backfill:
    field = view(snapshot)
    return Backfill(snapshot, field, FreeCapacity(snapshot, field), kind, default_s=500.0)


def on_part(gpu: int, steps: float, **more: Any) -> Job:
    return make_job(holds=(gpu,), gpu_milli=500, curve=Curve((1.0,)), remaining_steps=steps, resizable=False, **more)


@in_turn("ends", [(100.0, 300.0), (300.0, 100.0)])
def test_a_shared_gpu_is_free_when_the_last_of_those_on_it_has_left(ends: tuple[float, float]) -> None:
    first, second = (on_part(0, steps) for steps in ends)
    alone = on_part(1, 200.0)
    found = backfill(make_snapshot(first, second, alone, nodes=2)).leaving["titan_xp"]
    assert [(at, count) for at, count, _ in found] == [(1_200.0, 1), (1_300.0, 1)]


def test_a_gang_leaves_whole_and_who_is_past_its_end_soon() -> None:
    gang, late = make_job(holds=(0, 1), remaining_steps=200.0), make_job(holds=(2,), remaining_steps=0.0)
    found = backfill(make_snapshot(gang, late, nodes=4)).leaving["titan_xp"]
    assert [(at, count) for at, count, _ in found] == [(1_030.0, 1), (1_100.0, 2)]


@in_turn(
    ("changes", "seconds"),
    [
        ({"remaining_steps": 300.0}, 300.0),
        ({"remaining_steps": 300.0, "restart_cost_s": 20.0}, 320.0),
        ({"remaining_steps": 300.0, "time_limit_s": 299.0}, 299.0),
        ({"remaining_steps": 300.0, "time_limit_s": 301.0}, 300.0),
        ({"curves": {}, "time_limit_s": 70.0, "restart_cost_s": 5.0}, 75.0),
        ({"curves": {}, "deadline": 1_090.0}, 90.0),
        ({"curves": {}, "deadline": 1_000.0}, 500.0),
        ({"curves": {}}, 500.0),
    ],
)
def test_how_long_a_job_takes(changes: dict[str, Any], seconds: float) -> None:
    job = replace(make_job(gpus=1), **changes)
    assert backfill(make_snapshot(job)).duration_s(job, Gang("titan_xp", 1)) == pytest.approx(seconds)
    if not changes.get("curves", True) or "restart_cost_s" not in changes:
        return
    trains = replace(job, state=State.RUNNING, gpu_ids=(0,), gang=Gang("titan_xp", 1))
    assert backfill(make_snapshot(trains)).duration_s(trains, Gang("titan_xp", 1)) == pytest.approx(300.0)


@in_turn(("short_s", "starts"), [(99.0, True), (100.0, True), (101.0, False)])
@in_turn("kind", ["easy", "conservative"])
def test_a_job_that_is_behind_starts_where_it_ends_by_the_time_of_the_first(
    kind: str, short_s: float, starts: bool
) -> None:
    holds = make_job(gpus=2, holds=(0, 1), curve=Curve((0.5, 1.0)), remaining_steps=100.0)
    first = make_job(gpus=3, curve=Curve((0.0, 0.0, 1.0)), remaining_steps=50.0)
    behind = make_job(gpus=1, curve=Curve((1.0,)), remaining_steps=short_s)
    plan = plan_round(make_snapshot(holds, first, behind, nodes=3), load_policy("multifactor", {"backfill": kind}))
    assert [move.job_id for move in plan.moves if move.kind == "start"] == ([behind.id] if starts else [])


def test_a_type_whose_limit_is_used_up_is_not_started_on() -> None:
    nodes = (*make_nodes(1, type="a"), *make_nodes(1, type="b", first_id=1))
    curves = {"a": Curve((10.0,)), "b": Curve((1.0,))}
    job = replace(make_job(gpus=1), curves=curves, limits=("l",))
    for most, kind in ((0, "b"), (1, "a")):
        snapshot = make_snapshot(job, nodes=nodes, limits={"l": Limit("gpus", most, type="a", level="project Speech")})
        (move,) = plan_round(snapshot, load_policy("multifactor", {})).moves
        assert move.gang == Gang(kind, 1)


# Time sharing ----------------------------------------------------------------------------------------------


def test_a_job_that_is_fixed_is_not_counted_twice_when_a_round_ends() -> None:
    first = make_job(gpus=2, restart_cost_s=1e6)
    cluster = Cluster(first, titan_xp=4)
    cluster.step()
    started = cluster.snapshot.jobs[0]
    assert started.gang is not None
    late = make_job(gpus=2)
    fixed = replace(started, state=State.RUNNING_PROTECTED, protected_until=1e9)
    cluster.snapshot = replace(cluster.snapshot, jobs=(fixed, late), now=cluster.snapshot.now + ROUND_S)
    plan = cluster.step()
    assert [(move.job_id, move.kind) for move in plan.moves] == [(late.id, "start")]


@in_turn(("curve", "given"), [(Curve((1.0, 2.0)), True), (Curve((0.0, 2.0)), False)])
def test_no_job_is_given_a_gang_on_which_it_cannot_train(
    curve: Curve, given: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = replace(make_job(min_gpus=1, max_gpus=2), curves={"titan_xp": curve})
    snapshot = make_snapshot(job)
    field = view(snapshot)
    monkeypatch.setattr(timesharing, "_ranked", lambda *_: [(job, "titan_xp")])
    builder, policy = AllocationBuilder(field), load_policy("max_min_fairness", {})
    monkeypatch.setattr(timesharing, "_fill", lambda *_: None)
    timesharing._assign(TimeShareState.load({}), snapshot, field, policy, builder)
    assert builder.counts == ({job.id: Gang("titan_xp", 1)} if given else {})


# The simulator ---------------------------------------------------------------------------------------------


def test_idle_time_does_not_thin_the_variance() -> None:
    meter = Meter(0.0)
    meter.advance(10.0)
    assert meter.mean_variance == 0.0
    meter.train(1_000, 0.5, 1)
    meter.train(1_000, 1.0, 1)
    meter.advance(20.0)
    assert meter.mean_variance == pytest.approx(0.0625)
    meter.train(1_000, 0.5, -1)
    meter.train(1_000, 1.0, -1)
    meter.advance(60.0)
    assert meter.mean_variance == pytest.approx(0.0625)
    assert meter.seconds_at == {0: 50.0, 2_000: 10.0}
    assert meter.gpu_seconds == pytest.approx(20.0)


def test_what_a_job_checkpoints_when_it_is_stopped_is_not_lost_later(monkeypatch: pytest.MonkeyPatch) -> None:
    curves = {"titan_xp": Curve((1.0, 2.0))}
    long = TraceJob("long", 1, 0.0, 1_000.0, curves, max_gpus=2)
    late = TraceJob("late", 2, 100.0, 50.0, curves, max_gpus=1)
    cluster = SimulatedCluster(make_nodes(2), {}, 10.0, 4.0, 1.0)
    engine = Engine([long, late], cluster, load_policy("f_scheduling", {}), options=Options(seed=3))
    stopped: list[tuple[str, float, float]] = []
    stop = engine._stopped

    def noting(run: Any) -> None:
        stopped.append((run.job.id, run.counted, run.saved))
        stop(run)

    monkeypatch.setattr(engine, "_stopped", noting)
    engine.run()
    name, counted, saved = stopped[0]
    assert (name, saved) == ("long", counted)
    assert counted > 100.0
