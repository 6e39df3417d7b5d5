"""Partitions and windows: which nodes a job may be given GPUs on, under every policy."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scheduling.capacity.node_pools import OVERHEAD_S, divide
from scheduling.domain import Gang, Guarantee, Job, Limit, Move, Partition, Plan, Qos, Snapshot, Window
from scheduling.engine.rounds import plan_round
from scheduling.lifecycle import State
from scheduling.policies import POLICIES, load_policy, policy_class
from scheduling.policies.base import Policy
from tests.builders import make_curve, make_job, make_nodes, make_snapshot
from tests.cases import in_turn
from tests.scheduling.strategies import ONE_OF_EACH_KIND, snapshots

every_policy = pytest.mark.parametrize("name", sorted(POLICIES))
each_kind = in_turn("name", ONE_OF_EACH_KIND)
NOW = 1000.0


def load(name: str) -> Policy:
    return load_policy(name, {"n": 2} if name == "static_partition" else {})


def divided(seed: int) -> Snapshot:
    """A cluster with partitions that overlap, windows that began or are to come, and many jobs that wait."""
    rng = random.Random(seed)
    nodes = [*make_nodes(*rng.choices((1, 2, 4), k=4), type="a")]
    nodes += make_nodes(*rng.choices((1, 2, 4), k=3), type="b", first_id=100)
    names = [node.name for node in nodes]
    parts = {
        name: Partition(frozenset(rng.sample(names, rng.randint(1, 6))), rng.randint(0, 9))
        for name in rng.sample(["day", "night", "all"], rng.randint(0, 3))
    }
    windows = []
    for number in range(rng.randint(0, 3)):
        start = NOW + rng.choice((-50.0, 40.0, 120.0, 2_000.0))
        projects = rng.choice((frozenset[str](), frozenset({"speech"})))
        held = frozenset(rng.sample(names, rng.randint(1, 6)))
        windows.append(Window(str(number), held, start, start + 500.0, projects))
    jobs = []
    for number, node in enumerate(rng.sample(nodes, 3), 1):
        state = rng.choice((State.RUNNING, State.RUNNING, State.RUNNING_PROTECTED))
        own = node.gpu_ids[: rng.randint(1, len(node.gpu_ids))]
        jobs.append(_any_job(rng, number, parts, holds=own, type=node.type, state=state, max_gpus=None))
    jobs += [_any_job(rng, number, parts, max_gpus=rng.choice((None, 4, 8))) for number in range(10, 20)]
    return make_snapshot(*jobs, nodes=nodes, partitions=parts, windows=tuple(windows))


def _any_job(rng: random.Random, number: int, parts: Mapping[str, Partition], **more: Any) -> Job:
    known = {kind: make_curve(*rng.choice(((1.0, 2.0, 3.0), (4.0, 4.0), (0.0, 5.0, 6.0, 9.0)))) for kind in ("a", "b")}
    return make_job(
        number=number,
        curves=rng.choice((known, known, known, {"b": known["b"]} if "holds" not in more else known)),
        min_gpus=1 if "holds" in more else rng.choice((1, 1, 2, 3, 4)),
        project=rng.choice(("speech", "vision")),
        partition=rng.choice(("", *parts)),
        time_limit_s=rng.choice((None, None, 5.0, 60.0)),
        remaining_steps=rng.choice((10.0, 300.0, 1e5)),
        restartable=rng.random() < 0.9,
        protected_until=NOW + 100 if more.get("state") is State.RUNNING_PROTECTED else None,
        **more,
    )


def newly_given(snapshot: Snapshot, move: Move) -> set[str]:
    """Nodes that a move gives a job GPUs on, where it had none."""
    node_of = {gpu: node.name for node in snapshot.nodes for gpu in node.gpu_ids}
    before = next(job for job in snapshot.jobs if job.id == move.job_id).gpu_ids
    return {node_of[gpu] for gpu in move.gpu_ids} - {node_of[gpu] for gpu in before}


def _end(job: Job, move: Move) -> float:
    """As foreseen on the gang that it is given."""
    assert move.gang is not None
    limit = math.inf if job.time_limit_s is None else job.time_limit_s
    return NOW + OVERHEAD_S + min(job.remaining_steps / job.curves[move.gang.type].at(move.gang.count), limit)


def check(snapshot: Snapshot, name: str) -> None:
    plan = plan_round(snapshot, load(name))
    jobs = {job.id: job for job in snapshot.jobs}
    kinds = {gpu: node.type for node in snapshot.nodes for gpu in node.gpu_ids}
    pools = divide(snapshot).pools
    for move in plan.moves:
        job = jobs[move.job_id]
        assert {kinds[gpu] for gpu in move.gpu_ids} <= {move.gang.type if move.gang else ""}
        allowed = [part.nodes for key, part in snapshot.partitions.items() if key == job.partition]
        outside = frozenset(node.name for node in snapshot.nodes).difference(
            *(part.nodes for part in snapshot.partitions.values())
        )
        nodes = newly_given(snapshot, move)
        assert nodes <= (allowed[0] if allowed else outside)
        stays = (
            move.kind != "start" and pools is not None and {pools.of_node[node] for node in nodes} <= pools.held(job)
        )
        for window in snapshot.windows:
            if nodes & window.nodes and not window.admits(job):
                assert window.start > NOW
                assert stays or _end(job, move) <= window.start
    for reason in plan.reasons.values():
        assert "\x1f" not in reason.text
        assert "\x1f" not in str(dict(reason.detail))


@every_policy
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32))
def test_no_plan_puts_a_job_outside_its_partition_or_starts_it_into_a_window(name: str, seed: int) -> None:
    check(divided(seed), name)


@every_policy
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(snapshot=snapshots())
def test_one_partition_of_all_nodes_changes_nothing(name: str, snapshot: Snapshot) -> None:
    whole = {"all": Partition(frozenset(node.name for node in snapshot.nodes))}
    jobs = tuple(replace(job, partition="all") for job in snapshot.jobs)
    plain = plan_round(snapshot, load(name))
    other = plan_round(replace(snapshot, jobs=jobs, partitions=whole), load(name))
    assert [(m.job_id, m.kind, m.gpu_ids, m.gang) for m in other.moves] == [
        (m.job_id, m.kind, m.gpu_ids, m.gang) for m in plain.moves
    ]


TWO = make_nodes(4, 4)
PARTS = {"small": Partition(frozenset({"titan_xp-0"})), "rest": Partition(frozenset({"titan_xp-1"}), priority=10)}


@each_kind
def test_a_full_partition_keeps_its_jobs_waiting_though_others_have_room(name: str) -> None:
    holds = make_job(holds=(0, 1, 2, 3), min_gpus=4, max_gpus=4, partition="small", state=State.RUNNING_PROTECTED)
    waits = make_job(gpus=2, partition="small")
    other = make_job(gpus=2, partition="rest")
    plan = plan_round(make_snapshot(holds, waits, other, nodes=TWO, partitions=PARTS), load(name))
    started = {move.job_id: move for move in plan.moves}
    assert set(started[other.id].gpu_ids) <= {4, 5, 6, 7}
    assert started[other.id].gang == Gang("titan_xp", 2)
    assert waits.id not in started
    reason = plan.reasons[waits.id]
    assert reason.token in ("partition_full", "behind")
    if reason.token == "partition_full":
        assert reason.text.startswith("Partition small has 0 of its 4 GPUs free and it needs 2. ")


@each_kind
def test_a_partition_that_is_too_small_is_said_at_once(name: str) -> None:
    job = make_job(gpus=6, partition="small")
    plan = plan_round(make_snapshot(job, nodes=TWO, partitions=PARTS), load(name))
    assert not plan.moves
    assert plan.reasons[job.id].token == "partition_too_small"
    assert "at most 4 GPUs" in plan.reasons[job.id].text


def test_a_job_of_no_partition_runs_on_nodes_of_none() -> None:
    job = make_job(gpus=2)
    free = make_nodes(4, 4, 4)
    plan = plan_round(make_snapshot(job, nodes=free, partitions=PARTS), load("f_scheduling"))
    assert set(plan.moves[0].gpu_ids) <= {8, 9, 10, 11}


def test_a_gang_may_lie_across_pools_of_its_partition() -> None:
    parts = PARTS | {"all": Partition(frozenset({"titan_xp-0", "titan_xp-1"}))}
    wide = make_job(gpus=6, partition="all")
    snapshot = make_snapshot(wide, nodes=TWO, partitions=parts)
    plan = plan_round(snapshot, load("f_scheduling"))
    assert plan.moves[0].gang == Gang("titan_xp", 6)
    running = make_job(number=1, holds=plan.moves[0].gpu_ids, min_gpus=6, max_gpus=8, partition="all")
    later = plan_round(make_snapshot(running, nodes=TWO, partitions=parts), load("f_scheduling"))
    assert later.moves == ()
    assert later.reasons[running.id].token == "outside_partition"


def test_limits_by_type_hold_in_partitions() -> None:
    limit = {"k": Limit("gpus", most=1, type="titan_xp", level="project Speech")}
    job = make_job(gpus=2, partition="rest", limits=("k",))
    plan = plan_round(make_snapshot(job, nodes=TWO, partitions=PARTS, limits=limit), load("fifo_gang"))
    assert plan.reasons[job.id].token == "quota"


def test_the_partition_counts_in_the_priority() -> None:
    first, second = make_job(gpus=1, partition="small"), make_job(gpus=1, partition="rest")
    policy = load_policy("multifactor", {"weight_partition": 200})
    snapshot = make_snapshot(first, second, nodes=TWO, partitions=PARTS)
    scores = policy.scores_of(snapshot, snapshot.jobs)  # type: ignore[attr-defined]
    assert list(scores.priorities.weighted["partition"]) == [0.0, 200.0]
    assert scores.order == [1, 0]


# Windows -------------------------------------------------------------------------------------------


def window(
    start: float, end: float = 9_000.0, nodes: tuple[str, ...] = ("titan_xp-0",), **more: frozenset[str]
) -> Window:
    return Window("w1", frozenset(nodes), start, end, text="new switches", **more)


@each_kind
def test_no_job_starts_that_would_run_into_a_window(name: str) -> None:
    """At 1 step/s and with the overhead the short one is just done when the window begins."""
    curve = make_curve(1.0)
    short = make_job(number=1, gpus=1, curve=curve, remaining_steps=100.0)
    long = make_job(number=2, gpus=1, curve=curve, remaining_steps=101.0)
    start = NOW + 100.0 + OVERHEAD_S
    plan = plan_round(make_snapshot(short, long, nodes=make_nodes(4), windows=(window(start),)), load(name))
    assert [move.job_id for move in plan.moves] == [short.id]
    reason = plan.reasons[long.id]
    assert reason.token == "maintenance"
    assert "new switches" in reason.text
    assert reason.detail["until"] == 9_000.0
    assert plan.next_wake_at is not None
    assert plan.next_wake_at <= start


@each_kind
def test_it_starts_once_the_window_is_gone(name: str) -> None:
    long = make_job(gpus=1)
    nodes = make_nodes(4)
    assert plan_round(make_snapshot(long, nodes=nodes, windows=(window(NOW + 60),)), load(name)).moves == ()
    assert plan_round(make_snapshot(long, nodes=nodes), load(name)).moves[0].kind == "start"


@each_kind
def test_where_nothing_says_how_long_it_runs_a_time_limit_does(name: str) -> None:
    unknown = make_job(number=1, gpus=1, curves={})
    limited = make_job(number=2, gpus=1, curves={}, time_limit_s=60.0)
    plan = plan_round(make_snapshot(unknown, limited, nodes=make_nodes(4), windows=(window(NOW + 100),)), load(name))
    assert [move.job_id for move in plan.moves] == [limited.id]
    assert "how long it runs is not known" in plan.reasons[unknown.id].text


@each_kind
def test_a_job_that_runs_goes_on_until_the_window_and_leaves_when_it_begins(name: str) -> None:
    job = make_job(holds=(0, 1), gpus=2, remaining_steps=1e6)
    coming = make_snapshot(job, nodes=make_nodes(4), windows=(window(NOW + 10),))
    assert plan_round(coming, load(name)).moves == ()
    begun = replace(coming, windows=(window(NOW),))
    (move,) = plan_round(begun, load(name)).moves
    assert (move.kind, move.gpu_ids) == ("preempt", ())
    assert move.reason.token == "maintenance"
    other = replace(begun, nodes=make_nodes(4, 4))
    (move,) = plan_round(other, load(name)).moves
    assert set(move.gpu_ids) <= {4, 5, 6, 7}


@each_kind
def test_a_reservation_is_for_those_it_names(name: str) -> None:
    mine = make_job(number=1, gpus=1, project="speech")
    user = make_job(number=2, gpus=1, project="vision", user="7")
    other = make_job(number=3, gpus=1, project="vision", user="8")
    reserved = window(NOW - 10, projects=frozenset({"speech"}), users=frozenset({"7"}))
    plan = plan_round(make_snapshot(mine, user, other, nodes=make_nodes(4), windows=(reserved,)), load(name))
    assert {move.job_id for move in plan.moves} == {mine.id, user.id}
    assert plan.reasons[other.id].token == "reservation"


@each_kind
def test_others_leave_when_a_reservation_begins(name: str) -> None:
    other = make_job(number=1, holds=(0, 1), gpus=2, remaining_steps=1e6, project="vision")
    mine = make_job(number=2, holds=(2, 3), gpus=2, remaining_steps=1e6, project="speech")
    reserved = window(NOW - 1, projects=frozenset({"speech"}))
    plan = plan_round(make_snapshot(other, mine, nodes=make_nodes(4), windows=(reserved,)), load(name))
    assert [(move.job_id, move.gpu_ids) for move in plan.moves] == [(other.id, ())]
    assert plan.moves[0].reason.token == "reservation"


def test_a_job_that_cannot_checkpoint_stays_to_its_end() -> None:
    job = make_job(holds=(0,), gpus=1, restartable=False)
    for name in sorted(POLICIES):
        begun = make_snapshot(job, nodes=make_nodes(4), windows=(window(NOW - 1),))
        assert plan_round(begun, load(name)).moves == (), name


def test_a_round_is_due_when_a_window_ends() -> None:
    plan = plan_round(make_snapshot(nodes=4, windows=(window(NOW - 1, NOW + 60),)), load("fifo"))
    assert plan.next_wake_at == NOW + 60


@in_turn("name", [name for name in sorted(POLICIES) if policy_class(name).capabilities.shares_time])
def test_fractions_are_of_the_gpus_that_each_may_use(name: str) -> None:
    """A linear program that shared all GPUs would promise the partition of one GPU twice over."""
    nodes = make_nodes(1, 7)
    jobs = [make_job(number=n, gpus=1, partition="small") for n in (1, 2)]
    parts = {"small": Partition(frozenset({"titan_xp-0"})), "rest": Partition(frozenset({"titan_xp-1"}))}
    seen = divide(make_snapshot(*jobs, nodes=nodes, partitions=parts)).snapshot
    shares = load(name).allocate(seen).shares
    assert shares is not None
    assert sum(sum(by_type.values()) for by_type in shares.values()) <= 1 + 1e-6


@in_turn("name", ["max_min_fairness", "max_min_fairness_water_filling", "min_makespan"])
def test_linear_programs_bear_more_pools_than_a_cluster_has_types(name: str) -> None:
    nodes = make_nodes(*[1] * 60)
    parts = {f"p{n}": Partition(frozenset({f"titan_xp-{n}"})) for n in range(60)}
    jobs = [
        make_job(number=n + 1, gpus=1, partition=f"p{n % 60}", curve=make_curve(1.0 + n), remaining_steps=1e4)
        for n in range(1_200)
    ]
    plan = plan_round(make_snapshot(*jobs, nodes=nodes, partitions=parts), load(name))
    assert len({gpu for move in plan.moves for gpu in move.gpu_ids}) == 60


# What windows and partitions do not change -----------------------------------------------------------

DAY = 86_400.0
SPENT = {"k": Limit("spent", level="project Vision", text="The month's budget is spent.", parks=True)}
LEVELS = {"low": Qos(0), "high": Qos(100, preempts=("low",))}


def edges() -> list[Any]:
    """Two nodes of four GPUs between which an edge lies, and none."""
    far = Window("w1", frozenset({"titan_xp-0"}), NOW + 58 * DAY, NOW + 59 * DAY)
    outside = {"main": Partition(frozenset({"titan_xp-0", "titan_xp-1"}))}
    half = {"one": Partition(frozenset({"titan_xp-0"}))}
    return [
        pytest.param({}, "", id="none"),
        pytest.param({"windows": (far,)}, "", id="window"),
        pytest.param({"partitions": outside}, "main", id="partition"),
        pytest.param({"partitions": half}, "one", id="part"),
    ]


between = in_turn(("edge", "others"), edges())


def runs_on_all(**more: Any) -> Job:
    """Of no partition, and nothing says how long."""
    return make_job(number=1, holds=range(8), gpus=8, remaining_steps=1e9, project="vision", **more)


@each_kind
@between
def test_a_spent_budget_parks_a_job_across_an_edge(name: str, edge: dict[str, Any], others: str) -> None:
    (move,) = plan_round(make_snapshot(runs_on_all(limits=("k",)), nodes=TWO, limits=SPENT, **edge), load(name)).moves
    assert (move.kind, move.reason.token) == ("preempt", "budget_parked")


@in_turn("name", [name for name in ONE_OF_EACH_KIND if not policy_class(name).capabilities.shares_time])
@between
def test_what_is_guaranteed_is_taken_from_a_job_across_an_edge(name: str, edge: dict[str, Any], others: str) -> None:
    own = make_job(number=2, gpus=2, project="speech", partition=others, remaining_steps=10.0)
    guarantees = (Guarantee("speech", 2, level="project Speech"),)
    plan = plan_round(make_snapshot(runs_on_all(), own, nodes=TWO, guarantees=guarantees, **edge), load(name))
    moved = {move.job_id: move for move in plan.moves}
    assert {key: move.kind for key, move in moved.items()} == {"job-000001": "preempt", own.id: "start"}
    assert plan.reasons["job-000001"].token in ("reclaimed", "others_end_sooner")  # shortest first takes them itself


@between
def test_a_higher_level_puts_out_a_job_across_an_edge(edge: dict[str, Any], others: str) -> None:
    own = make_job(number=2, gpus=2, qos="high", partition=others, remaining_steps=10.0)
    snapshot = make_snapshot(runs_on_all(qos="low"), own, nodes=TWO, qos=LEVELS, **edge)
    plan = plan_round(snapshot, load("multifactor"))
    moved = {move.job_id: move for move in plan.moves}
    assert {key: move.kind for key, move in moved.items()} == {"job-000001": "preempt", own.id: "start"}
    assert plan.reasons["job-000001"].token == "preempted"


@between
def test_no_more_are_preempted_than_a_job_across_an_edge_leaves_room_for(edge: dict[str, Any], others: str) -> None:
    """It gives two GPUs on each node, and four are needed on the one."""
    wide = make_job(number=1, holds=(0, 1, 4, 5), gpus=4, remaining_steps=1e9, qos="low", project="vision")
    here = make_job(number=3, holds=(2, 3), gpus=2, remaining_steps=1e9, qos="low", partition=others)
    there = make_job(number=4, holds=(6, 7), gpus=2, remaining_steps=1e9, qos="low", partition=others)
    own = make_job(number=2, gpus=4, qos="high", partition=others, remaining_steps=10.0)
    plan = plan_round(make_snapshot(wide, here, there, own, nodes=TWO, qos=LEVELS, **edge), load("multifactor"))
    started = [move for move in plan.moves if move.kind == "start"]
    assert [move.job_id for move in started] == [own.id]
    assert len([move for move in plan.moves if move.kind == "preempt"]) <= 2


@each_kind
@between
def test_a_job_that_cannot_checkpoint_keeps_its_gpus(name: str, edge: dict[str, Any], others: str) -> None:
    rigid = runs_on_all(restartable=False, limits=("k",), qos="low")
    own = make_job(number=2, gpus=2, qos="high", partition=others, remaining_steps=10.0)
    guarantees = (Guarantee("speech", 2, level="project Speech"),)
    snapshot = make_snapshot(rigid, own, nodes=TWO, limits=SPENT, qos=LEVELS, guarantees=guarantees, **edge)
    assert plan_round(snapshot, load(name)).moves == ()


FAR = Window("w1", frozenset({"titan_xp-0", "titan_xp-1"}), NOW + 58 * DAY, NOW + 59 * DAY)
FOUR = make_nodes(8, 8, 8, 8)


def busy(number: int, node: int, **more: Any) -> Job:
    return make_job(number=number, holds=range(8 * node, 8 * node + 8), gpus=8, **more)


@each_kind
def test_a_window_that_no_job_runs_into_changes_nothing(name: str) -> None:
    """One node of each half is free, and every job is over long before the window."""
    wide = make_job(number=3, gpus=16, time_limit_s=100.0)
    snapshot = make_snapshot(busy(1, 0), busy(2, 2), wide, nodes=FOUR)
    plain = plan_round(snapshot, load(name))
    if name != "static_partition":  # its slots are smaller
        assert [move.job_id for move in plain.moves if move.kind == "start"] == [wide.id]
    windowed = plan_round(replace(snapshot, windows=(FAR,)), load(name))
    assert [(m.job_id, m.kind, m.gpu_ids) for m in windowed.moves] == [
        (m.job_id, m.kind, m.gpu_ids) for m in plain.moves
    ]


@each_kind
def test_a_window_that_no_job_runs_into_lets_no_job_pass_a_wide_job(name: str) -> None:
    """The wide one needs both nodes, and one has the window."""
    wide = make_job(number=1, gpus=8, priority=100, remaining_steps=1e5)
    runs = make_job(number=2, holds=(0,), gpus=1, curve=make_curve(1.0), remaining_steps=DAY)
    small = [make_job(number=n, gpus=1, curve=make_curve(1.0), remaining_steps=2 * DAY) for n in range(3, 13)]
    snapshot = make_snapshot(wide, runs, *small, nodes=TWO)
    windowed = replace(snapshot, windows=(replace(FAR, nodes=frozenset({"titan_xp-0"})),))
    plain, other = plan_round(snapshot, load(name)), plan_round(windowed, load(name))
    assert started(other) == started(plain)
    assert other.reasons[wide.id].token == plain.reasons[wide.id].token
    if name in ("fifo_gang", "multifactor"):
        assert started(other) == {}


def test_windows_count_for_those_who_may_run_into_them() -> None:
    def pools(*jobs: Job, **more: Any) -> int:
        found = divide(make_snapshot(*jobs, nodes=FOUR, windows=(FAR,), **more)).pools
        assert found is not None
        return len(found.every)

    short, endless = make_job(gpus=1), make_job(gpus=1, curves={}, user="7")
    assert pools() == pools(short) == 1
    assert pools(short, endless) == 2
    assert pools(short, make_job(gpus=1, remaining_steps=1e9)) == 2
    half = {"half": Partition(frozenset({"titan_xp-2", "titan_xp-3"}))}
    assert pools(replace(endless, partition="half"), partitions=half) == 2  # the partition's own edge
    theirs = replace(FAR, users=frozenset({"7"}))
    seen = divide(make_snapshot(endless, nodes=FOUR, windows=(theirs,)))
    assert seen.pools is not None
    assert len(seen.pools.every) == 1


# Gangs across pools ----------------------------------------------------------------------------------


def endless(**more: Any) -> Job:
    """Nothing says how long it runs, so each window ahead counts; it is held, so it takes no part."""
    return make_job(curves={}, held=True, **more)


def started(plan: Plan) -> dict[str, Gang | None]:
    return {move.job_id: move.gang for move in plan.moves if move.kind == "start"}


@in_turn("name", ["f_scheduling", "fifo_gang", "multifactor"])
def test_a_gang_starts_on_what_is_free_in_several_pools(name: str) -> None:
    wide = make_job(number=3, gpus=16, time_limit_s=100.0)
    snapshot = make_snapshot(busy(1, 0), busy(2, 2), wide, endless(), nodes=FOUR, windows=(FAR,))
    assert started(plan_round(snapshot, load(name))) == {wide.id: Gang("titan_xp", 16)}


@in_turn("name", ["fifo_gang", "multifactor"])
def test_it_takes_nothing_from_where_one_ahead_of_it_waits(name: str) -> None:
    """The first waits for a whole half; the second would have the free node of each for ever."""
    half = {"half": Partition(FAR.nodes), "all": Partition(frozenset(node.name for node in FOUR))}
    runs = [busy(1, 0, partition="all"), busy(2, 2, partition="all")]
    first = make_job(number=3, gpus=16, partition="half")
    second = make_job(number=4, gpus=16, partition="all")
    snapshot = make_snapshot(*runs, first, second, nodes=FOUR, partitions=half)
    assert started(plan_round(snapshot, load(name))) == {}
    assert started(plan_round(replace(snapshot, jobs=(*runs, second)), load(name))) == {second.id: Gang("titan_xp", 16)}


def test_a_job_beyond_its_limit_holds_no_job_up() -> None:
    half = {"half": Partition(FAR.nodes), "all": Partition(frozenset(node.name for node in FOUR))}
    runs = [busy(1, 0, partition="all"), busy(2, 2, partition="all")]
    limit = {"k": Limit("gpus", most=1, level="project Speech")}
    first = make_job(number=3, gpus=16, partition="half", limits=("k",))
    second = make_job(number=4, gpus=16, partition="all")
    snapshot = make_snapshot(*runs, first, second, nodes=FOUR, partitions=half, limits=limit)
    assert started(plan_round(snapshot, load("fifo_gang"))) == {second.id: Gang("titan_xp", 16)}


@each_kind
def test_a_job_that_waits_for_several_pools_is_told_so(name: str) -> None:
    far = replace(FAR, nodes=frozenset({"titan_xp-0"}))
    wide = make_job(number=1, gpus=8, priority=100, time_limit_s=DAY)
    small = make_job(number=2, holds=(0,), gpus=1, time_limit_s=DAY)
    plan = plan_round(make_snapshot(wide, small, endless(), nodes=TWO, windows=(far,)), load(name))
    assert started(plan) == {}
    reason = plan.reasons[wide.id]
    assert reason.token == "across_pools"
    assert "7 of 8 are free; it starts when 8 are" in reason.text
    free = plan_round(make_snapshot(wide, endless(), nodes=TWO, windows=(far,)), load(name))
    assert started(free) == {wide.id: Gang("titan_xp", 8)}
    assert free.moves[0].reason.token == "starts_across_pools"
