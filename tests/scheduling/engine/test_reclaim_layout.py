"""Owners whose gangs find no node or are beyond their limits, and what each side reads and is shown."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduling.capacity.cluster_view import view
from scheduling.domain import Gang, Guarantee, Limit
from scheduling.engine.reclaim.reasons import ReclaimGrant
from scheduling.engine.reclaim.reclaim import CLAIMS, ReclaimDecision, _VictimSearch
from scheduling.lifecycle import State
from scheduling.policies import load_policy
from tests.builders import make_curve, make_job, make_nodes
from tests.scheduling.engine.test_reclaim import (
    GPU,
    NOW,
    SPEECH,
    borrower,
    cluster,
    found,
    leaving,
    names,
    owner,
    protected,
)

# What cannot be laid out -----------------------------------------------------------------------------------


def test_where_the_gang_finds_no_node_everybody_keeps_what_they_have() -> None:
    """The three that would leave are on two nodes, so that a gang of two does not fit where it may not span them."""
    jobs = borrower(0), borrower(2), make_job(holds=(1, 3), gpus=2, project="audio", restartable=False)
    snapshot = cluster(*jobs, job := owner(), nodes=make_nodes(2, 2), settings={"multi_node": False})
    back = found(snapshot)
    assert (back.grants, back.waiting, back.wake_at) == ([], {}, None)
    assert back.claims == {job.id: NOW}
    assert found(replace(snapshot, settings={})).grants


def test_where_one_type_has_no_node_with_room_the_other_is_taken() -> None:
    nodes = (*make_nodes(2, 2, type="a"), *make_nodes(3, type="b", first_id=10))
    apart = [borrower(gpu, type="a") for gpu in (0, 2)]
    rigid = make_job(holds=(1, 3), gpus=2, project="audio", type="a", restartable=False)
    on_b = borrower(10, 11, 12, type="b")
    job = owner(2, curves={"a": make_curve(), "b": make_curve()})
    snapshot = cluster(*apart, rigid, on_b, job, nodes=nodes, settings={"multi_node": False})
    assert leaving(found(snapshot)) == {job.id: names(on_b)}
    assert leaving(found(replace(snapshot, settings={}))) == {job.id: names(*apart)}  # fewer
    guarded = replace(on_b, state=State.RUNNING_PROTECTED, protected_until=NOW + 40.0)
    later = found(cluster(*apart, rigid, guarded, job, nodes=nodes, settings={"multi_node": False}))
    assert (later.grants, later.wake_at, later.waiting[job.id].detail["type"]) == ([], NOW + 40.0, "b")


def test_after_a_gang_that_finds_no_node_the_next_is_served_as_if_it_had_not_been() -> None:
    nodes = make_nodes(2, 2)
    jobs = borrower(0), borrower(2), make_job(holds=(1, 3), gpus=2, project="audio", restartable=False)
    wide, narrow = owner(2), owner(1)
    limits = {"q": Limit("gpus", 3)}
    bound = [replace(job, limits=("q",)) for job in (*jobs[:2], wide, narrow)]
    snapshot = cluster(*bound, jobs[2], nodes=nodes, settings={"multi_node": False}, limits=limits)
    back = found(snapshot)
    assert back.grants[0].gpus in ((0,), (2,))
    assert [taking.job.id for taking in back.grants] == [narrow.id]
    taker = _VictimSearch(snapshot, view(snapshot), load_policy("fifo_gang"))
    used = dict(taker.book.used)
    taker.run(())
    assert taker.taken == names(*[job for taking in back.grants for job in taking.borrowers])
    assert dict(taker.book.used) != used


def test_what_a_taking_changes_in_the_books() -> None:
    rows = [Guarantee("speech", 4), Guarantee("vision", 1)]
    gone, job = borrower(0, 1, 2, limits=("q",)), owner(2, limits=("q",))
    snapshot = cluster(gone, job, rows=rows, limits={"q": Limit("gpus", 4)})
    taker = _VictimSearch(snapshot, view(snapshot), load_policy("fifo_gang"))
    assert (taker.free_capacity.free[GPU], taker.free_capacity.headroom.left["q"]) == (3, 1)
    assert taker._take(ReclaimGrant(job, Gang(GPU, 2), (), rows[0], (gone,)))
    assert (taker.free_capacity.free[GPU], taker.free_capacity.headroom.left["q"]) == (4, 2)
    assert {row.project: taker.book.used[row] for row in rows} == {"speech": 2_000, "vision": 0}
    assert taker.board.free == [[2, 3, 4, 5]]
    assert taker.taken == {gone.id}
    assert taker.found.grants == [ReclaimGrant(job, Gang(GPU, 2), (0, 1), rows[0], (gone,))]


@pytest.mark.parametrize(("most", "taken"), [(1, False), (2, True), (6, True)])
def test_an_owner_gets_no_more_than_its_limits_allow(most: int, taken: bool) -> None:
    limits = {"q": Limit("gpus", most)}
    jobs = borrower(0, 1, 2, 3, 4, 5), owner(2, limits=("q",))
    assert bool(found(cluster(*jobs, limits=limits)).grants) == taken


def test_a_limit_that_binds_borrowers_too_has_room_once_they_are_gone() -> None:
    limits = {"q": Limit("gpus", 6), "own": Limit("gpus", 1)}
    both = borrower(0, 1, 2, 3, 4, 5, limits=("q",)), owner(2, limits=("q",))
    assert found(cluster(*both, limits=limits)).grants
    assert not found(cluster(both[0], replace(both[1], limits=("q", "own")), limits=limits)).grants
    tight = {"q": Limit("gpus", 3)}
    partly = borrower(0, 1, held_since=9.0, limits=("q",)), borrower(2, 3, held_since=1.0)
    assert not found(cluster(*partly, owner(4, limits=("q",)), limits=tight, nodes=4)).grants


def test_owners_alike_of_whom_one_can_be_served_under_its_own_limit() -> None:
    """The second's limit is another, so it is looked at though the first found nothing."""
    limits = {"one": Limit("gpus", 1), "two": Limit("gpus", 2)}
    first, second = owner(2, limits=("one",)), owner(2, limits=("two",))
    back = found(cluster(borrower(0, 1, 2, 3, 4, 5), first, second, limits=limits))
    assert [taking.job.id for taking in back.grants] == [second.id]


def test_a_limit_of_one_type_keeps_no_other_job_from_that_type() -> None:
    """The first may have none of the type that would be free, and the other type has no borrowers."""
    nodes = (*make_nodes(2, type="a"), *make_nodes(2, type="b", first_id=10))
    limits = {"one": Limit("gpus", 0, type="a"), "two": Limit("gpus", 9, type="a")}
    rigid = make_job(holds=(10, 11), gpus=2, project="audio", type="b", restartable=False)
    curves = {"a": make_curve(), "b": make_curve()}
    first, second = (owner(2, curves=curves, limits=(name,)) for name in limits)
    back = found(cluster(borrower(0, 1, type="a"), rigid, first, second, nodes=nodes, limits=limits))
    assert [taking.job.id for taking in back.grants] == [second.id]


@pytest.mark.parametrize(
    "change",
    [
        {"project": "audio"},
        {"gpus": 1},
        {"excluded_gpus": frozenset[int]()},
    ],
)
def test_one_that_found_nothing_says_nothing_of_one_that_is_not_alike(change: dict[str, Any]) -> None:
    """The first may not use the GPUs of the only node that will be free."""
    rows = [Guarantee("speech", 4), Guarantee("audio", 4)]
    values: dict[str, Any] = {"excluded_gpus": frozenset({0, 1}), "gpus": 2}
    first = owner(**values)
    second = owner(**values | {"excluded_gpus": frozenset({9})} | change)
    back = found(cluster(borrower(0, 1), first, second, nodes=2, rows=rows))
    assert [taking.job.id for taking in back.grants] == [second.id]


def test_who_has_waited_longer_is_served_though_one_alike_was_not() -> None:
    stays = protected(0, 1, 2, 3, 4, 5, until=9e9)
    rigid = make_job(holds=(0,), gpus=1, project="audio", restartable=False)
    stays = replace(stays, gpu_ids=(1, 2, 3, 4, 5), gang=Gang(GPU, 5))
    rows = [replace(SPEECH, gpus=6), Guarantee("vision", 0)]
    new, old = owner(2), owner(2)
    snapshot = cluster(rigid, stays, new, old, rows=rows)
    snapshot = replace(snapshot, memory={CLAIMS: {old.id: NOW - 300.0, new.id: NOW}})
    back = found(snapshot)
    assert back.waiting.keys() == names(new)
    assert [taking.job.id for taking in back.grants] == [old.id]


def test_who_has_waited_its_time_does_not_wait_for_processes_that_leave_though_one_alike_does() -> None:
    holds, new, old = borrower(0, 1, 2, 3), owner(2), owner(2)
    snapshot = cluster(holds, new, old, blocked_gpu_ids=frozenset({4, 5}))
    back = found(replace(snapshot, memory={CLAIMS: {old.id: NOW - 300.0, new.id: NOW}}))
    assert leaving(back) == {old.id: names(holds)}


# What others are told and shown ----------------------------------------------------------------------------


def test_a_policy_sees_owners_with_their_gpus_and_borrowers_as_if_they_waited() -> None:
    goes = protected(0, 1, 2, 3, 4, 5, until=9e9)
    back = found(cluster(goes, job := owner(), waited_s=300.0))
    seen = back.changed
    assert seen.keys() == names(goes, job)
    own, other = seen[job.id], seen[goes.id]
    assert (own.state, own.gpu_ids, own.gang) == (State.STANDBY, (0, 1), Gang(GPU, 2))
    assert (other.state, other.gpu_ids, other.gang) == (State.WAITING_FOR_RESOURCE, (), None)
    assert other.protected_until is None
    assert ReclaimDecision().changed == {}


def test_all_sides_are_told() -> None:
    goes, soon = borrower(0, 1), protected(2, 3, 4, 5, until=NOW + 10.0)
    first, second = owner(2), owner(2)
    back = found(cluster(goes, soon, first, second))
    reasons = back.reasons({goes.id: Gang(GPU, 1)})
    tokens = {key: reason.token for key, reason in reasons.items()}
    assert tokens == {first.id: "reclaims", goes.id: "reclaimed", second.id: "reclaiming"}
    assert reasons[goes.id].text.startswith("Shrunk")
    assert back.reasons({})[goes.id].text.startswith("Preempted")
    assert reasons[goes.id].detail["reclaimed"] == 2


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_grants_are_within_guarantees_and_free_of_overlaps(data: st.DataObject) -> None:
    """Of borrowers of one to three GPUs on one node: enough leave, nobody beyond need, GPUs are given once."""
    sizes = data.draw(st.lists(st.integers(1, 3), max_size=4))
    holds, at = [], 0
    for size in sizes:
        holds.append(borrower(*range(at, at + size), held_since=data.draw(st.sampled_from([None, 1.0, 2.0]))))
        at += size
    owners = [owner(data.draw(st.integers(1, 4))) for _ in range(data.draw(st.integers(1, 3)))]
    guaranteed = data.draw(st.integers(0, 8))
    total = max(1, at + data.draw(st.integers(0, 3)))
    back = found(cluster(*holds, *owners, rows=[Guarantee("speech", guaranteed)], nodes=total))
    gone = [job for taking in back.grants for job in taking.borrowers]
    assert len({job.id for job in gone}) == len(gone)
    given = [gpu for taking in back.grants for gpu in taking.gpus]
    assert len(given) == len(set(given)) <= guaranteed
    kept = {gpu for job in holds if job not in gone for gpu in job.gpu_ids}
    assert kept.isdisjoint(given)
    assert all(len(taking.gpus) == taking.gang.count == taking.job.min_gpus for taking in back.grants)
    free = total - at
    for taking in back.grants:
        left = free + sum(len(job.gpu_ids) for job in taking.borrowers) - taking.gang.count
        assert left >= 0
        assert all(left < len(job.gpu_ids) for job in taking.borrowers)
        free = left
    served, used = {taking.job.id for taking in back.grants}, sum(taking.gang.count for taking in back.grants)
    for job in owners:
        rest = total - used
        assert job.id in served or used + job.min_gpus > guaranteed or job.min_gpus > rest
