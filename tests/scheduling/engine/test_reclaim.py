"""Who leaves for an owner of guaranteed GPUs, when, and in which order: each rule at its edge."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from scheduling.capacity.cluster_view import view
from scheduling.domain import Entity, Guarantee, Job, Node, Qos, Snapshot
from scheduling.engine.reclaim.reclaim import CLAIMS, LEAVE_S, ReclaimDecision, _fewest, in_order, reclaim
from scheduling.lifecycle import State
from scheduling.policies import load_policy
from tests.builders import make_curve, make_job, make_nodes, make_snapshot
from tests.cases import in_turn

GPU = "titan_xp"
NOW = 1_000.0
SPEECH = Guarantee("speech", 4)
TREE = {"lab": Entity(), "speech": Entity("lab"), "audio": Entity("lab"), "vision": Entity()}


def borrower(*holds: int, **changes: Any) -> Job:
    return make_job(holds=holds, gpus=len(holds), project="vision", **changes)


def protected(*holds: int, until: float | None, **changes: Any) -> Job:
    return borrower(*holds, state=State.RUNNING_PROTECTED, protected_until=until, **changes)


def owner(gpus: int = 2, **changes: Any) -> Job:
    return make_job(**{"gpus": gpus, "project": "speech", **changes})


def cluster(*jobs: Job, rows: Sequence[Guarantee] = (SPEECH,), waited_s: float | None = None, **more: Any) -> Snapshot:
    """`waited_s`: for how long the queued job has claimed already."""
    memory = {} if waited_s is None else {CLAIMS: {job.id: NOW - waited_s for job in jobs if not job.gpu_ids}}
    return make_snapshot(*jobs, guarantees=tuple(rows), memory=memory, **more)


def found(snapshot: Snapshot, given: Collection[str] = (), policy: str = "fifo_gang") -> ReclaimDecision:
    return reclaim(snapshot, load_policy(policy), given)


def leaving(back: ReclaimDecision) -> dict[str, set[str]]:
    return {taking.job.id: {job.id for job in taking.borrowers} for taking in back.grants}


def names(*jobs: Job) -> set[str]:
    return {job.id for job in jobs}


# Where nothing is taken ------------------------------------------------------------------------------------


def test_without_guarantees_or_under_a_policy_of_time_nothing_is_taken() -> None:
    jobs = borrower(0, 1, 2, 3, 4, 5), owner()
    assert found(cluster(*jobs, rows=())) == ReclaimDecision()
    assert found(cluster(*jobs), policy="max_min_fairness") == ReclaimDecision()
    assert found(cluster(*jobs)).grants


@in_turn(("policy", "taken"), [("first_fit", False), ("fifo_gang", True)])
def test_where_a_policy_places_parts_of_gpus_nothing_is_taken(policy: str, taken: bool) -> None:
    on_part = make_job(holds=(5,), gpus=1, project="vision", gpu_milli=500, resizable=False)
    jobs = borrower(0, 1, 2, 3, 4), owner()
    assert bool(found(cluster(*jobs, on_part), policy=policy).grants) == taken
    assert found(cluster(*jobs), policy=policy).grants  # whole ones are


def test_a_job_that_is_given_gpus_without_it_claims_nothing_and_uses_up_the_guarantee() -> None:
    holds, given, waits = borrower(0, 1, 2, 3), owner(2), owner(2)
    back = found(cluster(holds, given, waits, rows=[Guarantee("speech", 2)]), names(given))
    assert (back.grants, back.claims) == ([], {})
    back = found(cluster(holds, given, waits, rows=[Guarantee("speech", 4)]), names(given))
    assert back.claims == {waits.id: NOW}
    assert found(cluster(holds, given, waits), names(given, waits)) == ReclaimDecision()


def test_who_has_no_guarantee_claims_nothing() -> None:
    back = found(cluster(borrower(0, 1, 2, 3, 4, 5), owner(), make_job(gpus=1, project="audio")))
    assert len(back.claims) == 1


@in_turn(("guaranteed", "taken"), [(1, 0), (2, 1), (3, 1), (4, 2)])
def test_owners_take_as_much_as_is_guaranteed_and_no_more(guaranteed: int, taken: int) -> None:
    jobs = borrower(0, 1), borrower(2, 3), borrower(4, 5), owner(2), owner(2)
    back = found(cluster(*jobs, rows=[Guarantee("speech", guaranteed)]))
    assert [len(one) for one in leaving(back).values()] == [1] * taken
    assert len(back.claims) == taken


@in_turn(("used", "taken"), [(1, True), (2, True), (3, False)])
def test_what_the_project_has_already_counts(used: int, taken: bool) -> None:
    own = make_job(holds=range(used), gpus=used, project="speech")
    back = found(cluster(own, borrower(*range(used, used + 3)), owner(2), nodes=used + 3))
    assert bool(back.grants) == taken


# Who leaves ------------------------------------------------------------------------------------------------


@in_turn(
    "changes",
    [
        {"restartable": False},
        {"held": True},
        {"state": State.CHECKPOINTING},
        {"state": State.STOPPING},
        {"state": State.STANDBY},
    ],
)
def test_who_may_not_be_moved_is_not_taken(changes: dict[str, Any]) -> None:
    stays = borrower(0, 1, 2, 3, 4, 5, **changes)
    assert found(cluster(stays, owner(), waited_s=9e9)).grants == []


@in_turn("state", [State.RUNNING, State.RUNNING_PROTECTED, State.LAUNCHING])
def test_who_has_been_given_gpus_leaves_them_once_the_time_is_over(state: State) -> None:
    goes = borrower(0, 1, 2, 3, 4, 5, state=state)
    assert leaving(found(cluster(goes, job := owner(), waited_s=300.0))) == {job.id: names(goes)}


def test_who_shares_a_gpu_is_not_taken() -> None:
    beside = [make_job(holds=(0,), gpus=1, project="vision", gpu_milli=500, resizable=False) for _ in range(2)]
    alone = borrower(1)
    snapshot = cluster(*beside, alone, job := owner(1), nodes=2)
    assert leaving(found(snapshot)) == {job.id: names(alone)}
    assert found(cluster(*beside, owner(1), nodes=1)).grants == []


def test_a_job_that_is_on_a_node_that_is_not_in_service_is_not_taken() -> None:
    nodes = (*make_nodes(2), Node("old", GPU, (10, 11), schedulable=False))
    partly, here = borrower(0, 10, resizable=False, held_since=900.0), borrower(1, held_since=1.0)
    assert leaving(found(cluster(partly, here, job := owner(1), nodes=nodes))) == {job.id: names(here)}


def test_a_job_that_runs_within_a_guarantee_of_its_own_is_spared() -> None:
    rows = [Guarantee("speech", 2), Guarantee("vision", 4)]
    within = borrower(0, 1, 2, 3, held_since=1.0)
    beyond = borrower(4, 5, held_since=2.0)
    assert leaving(found(cluster(within, beyond, job := owner(), rows=rows))) == {job.id: names(beyond)}
    assert found(cluster(within, owner(), rows=rows, blocked_gpu_ids=frozenset({4, 5}), waited_s=9e9)).grants == []


@in_turn(
    ("change", "leaves_later"),
    [
        ({"priority": 1}, True),
        ({"qos": "high"}, True),
        ({"held_since": 10.0}, True),
        ({"held_since": None}, False),
        ({"restart_cost_s": 5.0}, True),
        ({"number": 2}, True),
        ({"number": 900_001}, False),
    ],
)
def test_who_leaves_first(change: dict[str, Any], leaves_later: bool) -> None:
    """The less urgent, then the newest, then whose restart costs least, then the one submitted last."""
    alike: dict[str, Any] = {"held_since": 100.0, "restart_cost_s": 1.0, "number": 900_000}
    other = borrower(0, 1, **alike)
    changed = borrower(2, 3, **alike | {"number": 899_999} | change)
    if "number" not in change:
        changed = replace(changed, number=900_000)
    levels = {"high": Qos(3), "": Qos(1)}
    back = found(cluster(other, changed, job := owner(), qos=levels, nodes=4))
    assert leaving(back) == {job.id: names(other if leaves_later else changed)}


def test_urgency_comes_before_time_and_time_before_cost() -> None:
    urgent = borrower(0, 1, priority=1, held_since=999.0)
    old = borrower(2, 3, held_since=1.0, restart_cost_s=0.0)
    new = borrower(4, 5, held_since=2.0, restart_cost_s=900.0)
    first, second = owner(2), owner(2)
    back = found(cluster(urgent, old, new, first, second))
    assert leaving(back) == {first.id: names(new), second.id: names(old)}


def test_the_cost_of_a_restart_is_that_of_all_gpus() -> None:
    wide = borrower(0, 1, 2, restart_cost_s=10.0, held_since=1.0)
    narrow = borrower(3, restart_cost_s=20.0, held_since=1.0)
    assert leaving(found(cluster(wide, narrow, job := owner(1), nodes=4))) == {job.id: names(narrow)}


def test_no_job_leaves_for_two_owners() -> None:
    one, two = borrower(0, 1, 2, 3), borrower(4, 5)
    first, second = owner(2), owner(2)
    back = found(cluster(one, two, first, second))
    assert leaving(back) == {first.id: names(two), second.id: names(one)}
    four = found(cluster(borrower(0, 1, 2, 3), first, second, nodes=4))
    assert [len(taking.borrowers) for taking in four.grants] == [1, 0]  # what is left over is the second's
    assert [taking.gpus for taking in four.grants] == [(0, 1), (2, 3)]


def test_what_is_free_is_counted_before_anybody_leaves() -> None:
    one, two = borrower(0, 1, held_since=1.0), borrower(2, 3, held_since=2.0)
    back = found(cluster(one, two, job := owner(4)))
    assert leaving(back) == {job.id: names(two)}  # two are free
    assert leaving(found(cluster(one, two, job, nodes=4))) == {job.id: names(one, two)}
    back = found(cluster(one, job := owner(4)))
    assert leaving(back) == {job.id: set()}
    assert back.grants[0].gpus == (2, 3, 4, 5)


def test_the_first_that_are_enough_are_taken_without_those_that_are_not_needed_then() -> None:
    pairs = [(borrower(*range(n * 10, n * 10 + size)), SPEECH) for n, size in enumerate((1, 1, 3))]

    def sizes(missing: int) -> list[int]:
        return [len(job.gpu_ids) for job, _ in _fewest(missing, pairs, lambda job: len(job.gpu_ids))]

    assert [sizes(missing) for missing in (0, 1, 2, 3, 4, 5, 6)] == [[], [1], [1, 1], [3], [1, 3], [1, 1, 3], []]


@given(
    sizes=st.lists(st.integers(1, 5), max_size=6),
    missing=st.integers(1, 12),
)
def test_no_job_leaves_that_is_not_needed(sizes: list[int], missing: int) -> None:
    pairs = [(borrower(*range(n * 10, n * 10 + size)), SPEECH) for n, size in enumerate(sizes)]
    chosen = [len(job.gpu_ids) for job, _ in _fewest(missing, pairs, lambda job: len(job.gpu_ids))]
    assert bool(chosen) == (sum(sizes) >= missing)
    if chosen:
        assert sum(chosen) >= missing > sum(chosen) - min(chosen)


def test_gpus_of_another_type_are_of_no_use() -> None:
    nodes = (*make_nodes(2, type="a"), *make_nodes(2, type="b", first_id=10))
    on_a = borrower(0, 1, type="a", held_since=1.0)
    on_b = borrower(10, 11, type="b", held_since=900.0)
    job = owner(2, type="a")
    assert leaving(found(cluster(on_a, on_b, job, nodes=nodes))) == {job.id: names(on_a)}
    assert found(cluster(on_b, job, nodes=nodes, blocked_gpu_ids=frozenset({0, 1}), waited_s=9e9)).grants == []


def test_of_two_types_the_one_for_which_fewer_gpus_change_hands() -> None:
    nodes = (*make_nodes(3, type="a"), *make_nodes(2, type="b", first_id=10))
    on_a, on_b = borrower(0, 1, 2, type="a"), borrower(10, 11, type="b")
    curves = {"a": make_curve(9.0, 18.0), "b": make_curve()}
    job = owner(2, curves=curves)
    assert leaving(found(cluster(on_a, on_b, job, nodes=nodes))) == {job.id: names(on_b)}
    nodes = (*make_nodes(2, type="a"), *make_nodes(2, type="b", first_id=10))
    on_a = borrower(0, 1, type="a")
    assert leaving(found(cluster(on_a, on_b, job, nodes=nodes))) == {job.id: names(on_a)}  # as many, and faster
    slow = replace(job, curves={"a": make_curve(0.1, 0.2), "b": make_curve()})
    assert leaving(found(cluster(on_a, on_b, slow, nodes=nodes))) == {job.id: names(on_b)}


def test_owners_are_served_in_queue_order() -> None:
    first, urgent = owner(4), owner(4, priority=5)
    back = found(cluster(borrower(0, 1, 2, 3, 4, 5), first, urgent))
    assert [taking.job.id for taking in back.grants] == [urgent.id]
    late, long = owner(2, submitted_at=5.0), owner(2, submitted_at=900.0)
    snapshot = cluster(late, long)
    for name in ("fifo_gang", "multifactor"):
        policy = load_policy(name)
        expected = in_order(policy, snapshot, view(snapshot))
        assert [job.id for job in in_order(policy, snapshot, view(snapshot))] == [job.id for job in expected]


# By levels of the tree -------------------------------------------------------------------------------------


def test_an_owner_below_a_guaranteed_level_takes_within_it_where_that_has_its_own() -> None:
    rows = [Guarantee("lab", 4), Guarantee("speech", 2)]
    sibling = make_job(holds=(0, 1, 2, 3), gpus=4, project="audio", held_since=1.0)
    outside = borrower(4, 5, held_since=900.0)
    snapshot = cluster(sibling, outside, job := owner(2), rows=rows, entities=TREE)
    back = found(snapshot)
    assert leaving(back) == {job.id: names(sibling)}
    assert back.grants[0].by == rows[1]
    roomy = cluster(sibling, outside, job, rows=[Guarantee("lab", 6), rows[1]], entities=TREE)
    back = found(roomy)
    assert leaving(back) == {job.id: names(outside)}
    assert back.grants[0].by.project == "lab"


@in_turn("free", [0, 1, 2])
def test_what_is_free_is_of_no_use_where_the_level_above_has_all_that_it_is_guaranteed(free: int) -> None:
    rows = [Guarantee("lab", 4), Guarantee("speech", 2)]
    sibling = make_job(holds=(0, 1, 2, 3), gpus=4, project="audio")
    back = found(cluster(sibling, job := owner(2), rows=rows, entities=TREE, nodes=4 + free))
    assert leaving(back) == {job.id: names(sibling)}


# When ------------------------------------------------------------------------------------------------------


@in_turn(("waited_s", "taken"), [(269.0, False), (270.0, True), (271.0, True)])
def test_protection_ends_so_long_before_the_time_is_over_that_a_checkpoint_can_be_written(
    waited_s: float, taken: bool
) -> None:
    stays = protected(0, 1, 2, 3, 4, 5, until=9e9)
    back = found(cluster(stays, job := owner(), rows=[replace(SPEECH, reclaim_within_s=300.0)], waited_s=waited_s))
    assert leaving(back) == ({job.id: names(stays)} if taken else {})
    assert back.claims == {job.id: NOW - waited_s}
    assert back.wake_at == (None if taken else NOW - waited_s + 300.0 - LEAVE_S)
    assert bool(back.waiting) == (not taken)


@in_turn(("until", "at"), [(NOW + 20.0, NOW + 20.0), (NOW + 500.0, NOW + 270.0), (None, NOW + 270.0), (NOW - 5.0, NOW)])
def test_it_wakes_when_protection_ends_or_the_guarantees_time(until: float | None, at: float) -> None:
    back = found(cluster(protected(0, 1, 2, 3, 4, 5, until=until), job := owner()))
    assert back.grants == []
    assert back.wake_at == at
    assert back.waiting[job.id].detail["reclaimed_at"] == at
    assert f"in {at - NOW:.0f} s at the latest" in back.waiting[job.id].text


def test_it_waits_for_the_last_of_those_that_it_needs() -> None:
    jobs = [protected(0, 1, until=NOW + 10.0), protected(2, 3, until=NOW + 90.0), borrower(4, 5)]
    assert found(cluster(*jobs, owner(6), rows=[Guarantee("speech", 6)])).wake_at == NOW + 90.0


def test_a_job_that_is_not_protected_leaves_before_who_is() -> None:
    guarded = protected(0, 1, until=NOW + 10.0, held_since=990.0)
    open_ = borrower(2, 3, held_since=1.0)
    assert leaving(found(cluster(guarded, open_, job := owner(), nodes=4))) == {job.id: names(open_)}


def test_several_that_wait_wake_it_for_the_earliest() -> None:
    rows = [Guarantee("speech", 2, reclaim_within_s=200.0), Guarantee("audio", 2, reclaim_within_s=100.0)]
    first, second = owner(2), owner(2, project="audio")
    stays = protected(0, 1, 2, 3, 4, 5, until=None)
    back = found(cluster(stays, first, second, rows=rows))
    assert back.wake_at == NOW + 70.0
    assert found(cluster(stays, second, first, rows=rows)).wake_at == NOW + 70.0
    assert back.waiting.keys() == names(first, second)
    early = replace(first, submitted_at=0.0), replace(second, submitted_at=0.1)
    swapped = [replace(rows[0], project="audio"), replace(rows[1], project="speech")]
    assert found(cluster(stays, *early, rows=swapped)).wake_at == NOW + 70.0


def test_a_job_that_waits_for_protection_to_end_counts_as_served() -> None:
    """A second one has no claim to what the first is about to get."""
    stays = protected(0, 1, 2, 3, 4, 5, until=NOW + 10.0)
    first, second = owner(4), owner(4)
    back = found(cluster(stays, first, second))
    assert back.claims.keys() == back.waiting.keys() == names(first)


def test_of_two_types_it_waits_for_the_one_that_comes_first() -> None:
    nodes = (*make_nodes(2, type="a"), *make_nodes(2, type="b", first_id=10))
    for soon, kind in (("a", "a"), ("b", "b")):
        until = {"a": NOW + 50.0, "b": NOW + 50.0} | {soon: NOW + 20.0}
        stay = protected(0, 1, until=until["a"], type="a"), protected(10, 11, until=until["b"], type="b")
        job = owner(2, curves={"a": make_curve(), "b": make_curve()})
        back = found(cluster(*stay, job, nodes=nodes))
        assert (back.wake_at, back.waiting[job.id].detail["type"]) == (NOW + 20.0, kind)


@in_turn(("stopping", "taken"), [(1, True), (2, False), (3, False)])
def test_processes_on_their_way_out_are_waited_for_where_they_leave_enough(stopping: int, taken: bool) -> None:
    blocked = frozenset(range(6 - stopping, 6))
    holds = borrower(*range(6 - stopping))
    snapshot = cluster(holds, job := owner(), blocked_gpu_ids=blocked)
    assert leaving(found(snapshot)) == ({job.id: names(holds)} if taken else {})
    late = replace(snapshot, memory={CLAIMS: {job.id: NOW - 270.0}})
    assert leaving(found(late)) == {job.id: names(holds)}  # not beyond the guarantee's time


def test_no_job_starts_on_gpus_of_processes_that_are_on_their_way_out() -> None:
    holds = borrower(1, 2, 3, 4, 5)
    back = found(cluster(holds, owner(), blocked_gpu_ids=frozenset({0})))
    assert [taking.gpus for taking in back.grants] == [(1, 2)]


def test_an_owner_starts_on_nodes_with_processors_enough_once_borrowers_are_gone() -> None:
    """Beside the job that stays on the first node two thirds of its processors are left."""
    nodes = (Node("n0", GPU, (0, 1, 2), cpu_milli=3_000), Node("n1", GPU, (3, 4), cpu_milli=9_000))
    stays = make_job(holds=(0,), gpus=1, project="audio", restartable=False, cpu_milli=1_000)
    goes, rigid = borrower(1, 2, cpu_milli=2_000), make_job(holds=(3, 4), gpus=2, restartable=False, project="audio")
    for milli, taken in ((2_000, [(1, 2)]), (2_001, [])):
        back = found(cluster(stays, goes, rigid, owner(cpu_milli=milli), nodes=nodes))
        assert [taking.gpus for taking in back.grants] == taken


def test_processes_that_leave_gpus_of_another_type_are_not_waited_for() -> None:
    nodes = (*make_nodes(2, type="a"), *make_nodes(2, type="b", first_id=10))
    holds = borrower(0, 1, type="a")
    snapshot = cluster(holds, job := owner(2, type="a"), nodes=nodes, blocked_gpu_ids=frozenset({10, 11}))
    assert leaving(found(snapshot)) == {job.id: names(holds)}
