"""Who starts now, who has a reservation and when, and what is said of it, with one type of GPU and with two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduling.capacity.cluster_view import view
from scheduling.capacity.free_capacity import FreeCapacity
from scheduling.domain import Curve, Gang, Job, Limit, Snapshot
from scheduling.domain.wording import span
from scheduling.lifecycle import State
from scheduling.policies.queue.backfill import Backfill, Slot
from tests.builders import make_job, make_nodes, make_snapshot

GPU = "titan_xp"
NOW = 1_000.0


def lasting(gpus: int, seconds: float, **changes: Any) -> Job:
    """It takes so long on its gang."""
    curve = Curve((0.0,) * (gpus - 1) + (1.0,))
    values: dict[str, Any] = {"gpus": gpus, "curve": curve, "remaining_steps": seconds}
    return make_job(**values | changes)


def trains(*gpus: int, left_s: float, **changes: Any) -> Job:
    return lasting(len(gpus), left_s, holds=gpus, **changes)


def make(snapshot: Snapshot, kind: Any = "easy", **more: Any) -> Backfill:
    field = view(snapshot)
    return Backfill(snapshot, field, FreeCapacity(snapshot, field), kind, **{"default_s": 500.0, **more})


def run(*jobs: Job, kind: Any = "easy", nodes: Any = 4, sizes: Any = "min", **changes: Any) -> Backfill:
    snapshot = make_snapshot(*jobs, nodes=nodes, **changes)
    filling = make(snapshot, kind, sizes=sizes)
    filling.run(view(snapshot).queued)
    return filling


def started(filling: Backfill) -> set[str]:
    return {key for key in filling.free_capacity.counts if key in {job.id for job in filling.view.queued}}


def names(*jobs: Job) -> set[str]:
    return {job.id for job in jobs}


def at_of(filling: Backfill, job: Job) -> float:
    """When it is expected to start."""
    reason = filling.reasons[job.id] if job.id in filling.reasons else filling.behind(job.id)
    return float(reason.detail["expected_start_at"])


# Who starts ------------------------------------------------------------------------------------------------


def test_all_start_while_there_is_room_and_the_first_that_has_none_waits() -> None:
    jobs = [lasting(2, 100.0), lasting(2, 300.0), lasting(1, 50.0), lasting(1, 50.0)]
    filling = run(*jobs)
    assert started(filling) == names(*jobs[:2])
    assert filling.firsts == {"": jobs[2]}
    assert [filling.reasons[job.id].token for job in jobs[:3]] == ["started", "started", "resources"]
    assert filling.reasons[jobs[0].id].text.startswith("It has the highest priority of those that wait")
    assert at_of(filling, jobs[2]) == NOW + 100.0
    assert filling.free_capacity.free[GPU] == 0
    assert filling.waits_behind.keys() == names(jobs[3])


@pytest.mark.parametrize(("kind", "starts"), [("none", False), ("easy", True), ("conservative", True)])
def test_a_job_that_is_behind_starts_only_with_backfill(kind: str, starts: bool) -> None:
    holds, first, behind = trains(0, 1, 2, left_s=100.0), lasting(4, 10.0), lasting(1, 100.0)
    filling = run(holds, first, behind, kind=kind)
    assert started(filling) == (names(behind) if starts else set())
    reason = filling.reasons[behind.id] if starts else filling.behind(behind.id)
    if starts:
        assert (reason.token, reason.detail) == ("backfilled", {"by": first.id})
        assert f"reservation of #{first.number}" in reason.text
    else:
        assert (reason.token, reason.detail) == ("priority", {"by": first.id})
        assert reason.text == f"#{first.number} and others of higher priority are ahead; this one starts after them."


@pytest.mark.parametrize(("seconds", "starts"), [(99.0, True), (100.0, True), (100.1, False)])
def test_no_job_is_put_before_a_reservation_that_it_would_delay(seconds: float, starts: bool) -> None:
    for kind in ("easy", "conservative"):
        holds, first, behind = trains(0, 1, left_s=100.0), lasting(4, 10.0), lasting(2, seconds)
        assert bool(started(run(holds, first, behind, kind=kind))) == starts


def test_beside_a_reservation_a_long_job_starts_where_enough_is_left() -> None:
    for gpus, starts in ((1, True), (2, False)):
        holds, first, behind = trains(0, 1, left_s=100.0), lasting(3, 10.0), lasting(gpus, 9e5)
        assert bool(started(run(holds, first, behind))) == starts


def test_easy_reserves_for_the_first_only_and_conservative_for_all() -> None:
    """The third would end before the first begins and delay the second, which would begin at 50 on three."""
    holds = [trains(0, left_s=50.0), trains(1, left_s=100.0)]
    first, second, third = lasting(4, 10.0), lasting(3, 50.0), lasting(2, 60.0)
    assert started(run(*holds, first, second, third, kind="easy")) == names(third)
    filling = run(*holds, first, second, third, kind="conservative")
    assert started(filling) == set()
    assert [at_of(filling, job) for job in (first, second, third)] == [NOW + 100.0, NOW + 50.0, NOW + 110.0]


def test_of_partitions_each_has_its_own_first() -> None:
    holds = trains(0, 1, 2, 3, left_s=100.0)
    one, two, three = lasting(1, 10.0), lasting(1, 10.0, partition="p"), lasting(1, 10.0, partition="p")
    filling = run(holds, one, two, three, kind="none")
    assert filling.firsts == {"": one, "p": two}
    assert filling.waits_behind[three.id][0] is two


def test_who_only_a_limit_keeps_back_holds_up_no_job() -> None:
    limits = {"l": Limit("gpus", 1, level="project Speech")}
    barred, other = lasting(2, 10.0, limits=("l",)), lasting(4, 10.0)
    filling = run(barred, other, limits=limits, kind="none")
    assert (filling.reasons[barred.id].token, started(filling), filling.firsts) == ("quota", names(other), {})


def test_a_limit_that_was_used_up_in_this_round_keeps_the_next_back() -> None:
    limits = {"l": Limit("gpus", 3, level="project Speech")}
    jobs = [lasting(2, 10.0, limits=("l",)), lasting(2, 10.0, limits=("l",)), lasting(1, 10.0, limits=("l",))]
    filling = run(*jobs, limits=limits, nodes=9)
    assert started(filling) == names(jobs[0], jobs[2])
    assert filling.reasons[jobs[1].id].token == "quota"


def test_who_nothing_here_can_run_holds_up_no_job() -> None:
    large, other = lasting(5, 10.0), lasting(1, 10.0)
    filling = run(large, other)
    assert (filling.reasons[large.id].token, started(filling)) == ("no_type", names(other))


def test_a_job_that_needs_gpus_without_a_known_end_is_told_what_is_free() -> None:
    """One GPU of b belongs to a gang that is counted on a."""
    wide = trains(0, 10, left_s=50.0, type="a", resizable=False)
    job, other = lasting(2, 10.0, type="b"), lasting(1, 10.0, type="b")
    filling = run(wide, job, other, nodes=TWO)
    assert filling.reasons[job.id].token == "no_room"
    assert filling.reasons[job.id].detail == {"type": "b", "needs": 2, "free": 1}
    assert (started(filling), filling.firsts) == (names(other), {})


@pytest.mark.parametrize(("sizes", "count"), [("min", 1), ("max", 3)])
def test_a_gang_is_the_smallest_or_the_largest(sizes: str, count: int) -> None:
    job = make_job(min_gpus=1, max_gpus=3)
    filling = run(job, sizes=sizes)
    assert filling.free_capacity.counts[job.id] == Gang(GPU, count)
    open_ended = make_job(min_gpus=1)
    assert run(open_ended, sizes=sizes).free_capacity.counts[open_ended.id] == Gang(GPU, 1)


# When ------------------------------------------------------------------------------------------------------


def test_gpus_of_processes_on_their_way_out_are_there_half_a_minute_later() -> None:
    filling = run(job := lasting(3, 10.0), nodes=4, blocked_gpu_ids=frozenset({0, 1}))
    assert at_of(filling, job) == NOW + 30.0
    nodes = (*make_nodes(2), *make_nodes(4, type="b", first_id=10))
    filling = run(trains(0, 1, left_s=90.0), job := lasting(2, 10.0), nodes=nodes, blocked_gpu_ids=frozenset({10}))
    assert at_of(filling, job) == NOW + 90.0


def test_a_job_that_is_past_its_expected_end_is_gone_half_a_minute_later() -> None:
    filling = run(trains(0, 1, 2, 3, left_s=0.0), job := lasting(1, 10.0))
    assert at_of(filling, job) == NOW + 30.0
    fixed = trains(0, 1, 2, 3, left_s=70.0, state=State.RUNNING_PROTECTED)
    assert at_of(run(fixed, job := lasting(1, 10.0)), job) == NOW + 70.0
    launching = trains(0, 1, 2, 3, left_s=70.0, state=State.LAUNCHING, restart_cost_s=9.0)
    assert at_of(run(launching, job := lasting(1, 10.0)), job) == NOW + 79.0


@given(
    left=st.lists(st.tuples(st.integers(1, 3), st.integers(1, 500)), min_size=1, max_size=4),
    gpus=st.integers(1, 12),
)
@settings(max_examples=60, deadline=None)
def test_the_first_waits_until_enough_have_left(left: list[tuple[int, int]], gpus: int) -> None:
    total = sum(count for count, _ in left)
    gpus = min(gpus, total)
    at, holds = 0, []
    for count, seconds in left:
        holds.append(trains(*range(at, at + count), left_s=float(seconds)))
        at += count
    filling = run(*holds, job := lasting(gpus, 10.0), nodes=total)
    enough = (end for _, end in left if sum(count for count, other in left if other <= end) >= gpus)
    assert at_of(filling, job) == NOW + min(enough)
    reason = filling.reasons[job.id]
    assert (reason.detail["missing"], reason.detail["needs"]) == (gpus, gpus)


def test_what_waits_is_told_in_words() -> None:
    holds = trains(0, 1, 2, left_s=7_200.0)
    filling = run(holds, job := lasting(3, 10.0), nodes=4)
    reason = filling.reasons[job.id]
    assert reason.text == (
        f"It is next: 2 more {GPU} must become free for 3 × {GPU}, expected in 2 h, "
        f"when #{holds.number} is expected to end."
    )
    assert reason.detail["freed_by"] == holds.id
    one = run(holds, job := lasting(2, 10.0), nodes=4).reasons[job.id]
    assert f"1 more {GPU} must become free" in one.text


def test_a_job_that_is_behind_is_told_when_it_can_start() -> None:
    holds, first, behind = trains(0, 1, 2, 3, left_s=100.0), lasting(4, 50.0), lasting(1, 20.0)
    for kind, freed in (("easy", None), ("conservative", holds.id)):
        filling = run(holds, first, behind, kind=kind)
        reason = filling.behind(behind.id)
        assert reason.text.startswith(f"#{first.number} and others of higher priority are ahead; without delaying them")
        assert "can start in 2 min" in reason.text
        assert (reason.detail["expected_start_at"], reason.detail.get("freed_by")) == (NOW + 150.0, freed)
        assert reason.detail["by"] == first.id


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.0, "0 s"),
        (119.0, "119 s"),
        (120.0, "2 min"),
        (7_199.0, "120 min"),
        (7_200.0, "2 h"),
        (172_799.0, "48 h"),
        (172_800.0, "2 days"),
        (864_000.0, "10 days"),
    ],
)
def test_spans_of_time_are_told_in_one_unit(seconds: float, words: str) -> None:
    assert span(seconds) == words


# On which type ---------------------------------------------------------------------------------------------

TWO = (*make_nodes(2, type="a"), *make_nodes(2, type="b", first_id=10))


def either(fast: float, slow: float, **changes: Any) -> Job:
    """100 steps at these speeds on a and b."""
    curves = {"a": Curve((fast,)), "b": Curve((slow,))}
    values: dict[str, Any] = {"gpus": 1, "curves": curves, "remaining_steps": 100.0}
    return make_job(**values | changes)


def on_type(kind: str, *gpus: int, left_s: float) -> Job:
    return trains(*gpus, left_s=left_s, type=kind)


@pytest.mark.parametrize(("left_s", "kind"), [(89.0, "a"), (91.0, "b"), (0.5, "a")])
def test_it_is_given_the_type_on_which_it_ends_first(left_s: float, kind: str) -> None:
    """On a it takes 10 s once that is free, on b 100 s from now on."""
    filling = run(on_type("a", 0, 1, left_s=left_s), job := either(10.0, 1.0), nodes=TWO)
    if kind == "b":
        assert filling.free_capacity.counts[job.id] == Gang("b", 1)
    else:
        assert job.id not in filling.free_capacity.counts
        assert (at_of(filling, job), filling.reasons[job.id].detail["type"]) == (NOW + left_s, "a")


def test_of_types_alike_the_first_by_name() -> None:
    filling = run(job := either(1.0, 1.0), nodes=TWO)
    assert filling.free_capacity.counts[job.id] == Gang("a", 1)


@pytest.mark.parametrize(("most", "kind"), [(0, "b"), (1, "a")])
def test_a_type_whose_limit_is_used_up_is_no_choice_now(most: int, kind: str) -> None:
    limits = {"l": Limit("gpus", most, type="a", level="project Speech")}
    filling = run(job := either(10.0, 1.0, limits=("l",)), nodes=TWO, limits=limits)
    assert filling.free_capacity.counts[job.id] == Gang(kind, 1)


def test_those_ahead_that_wait_for_a_type_are_counted_by_the_work_that_they_bring() -> None:
    """Both types are in use until 100. The first takes a; so does the second, of 40 s on one of two GPUs; the third
    would end first on a by itself, and on b once 20 s of the second's work are counted."""
    holds = on_type("a", 0, 1, left_s=100.0), on_type("b", 10, 11, left_s=100.0)
    first = either(100.0, 0.1)
    second = either(2.5, 0.1)
    third = either(1.0, 0.9)
    filling = run(*holds, first, second, third, nodes=TWO)
    assert filling.waits_behind.keys() == names(second, third)
    slots = {key: slot for key, (_, slot) in filling.waits_behind.items()}
    assert slots[second.id] == Slot(NOW + 100.0, Gang("a", 1), 40.0)
    assert slots[third.id] == Slot(NOW + 100.0, Gang("b", 1), 100.0 / 0.9)
    assert filling._ahead_s == {"a": 20.0, "b": pytest.approx(50.0 / 0.9)}
    slower = run(*holds, first, second, either(1.0, 0.8), nodes=TWO)
    assert {slot.gang.type for _, slot in slower.waits_behind.values() if slot} == {"a"}
    assert run(*holds, first, second, third, nodes=TWO, kind="conservative")._ahead_s == {}


def test_what_starts_now_is_not_put_off_by_those_that_wait() -> None:
    holds = on_type("a", 0, left_s=100.0), on_type("b", 10, 11, left_s=1e6)
    first = either(100.0, 0.1, gpus=2, curves={"a": Curve((0.0, 1.0))})
    second = either(1.0, 0.1, remaining_steps=300.0)  # waits for a
    third = either(1.0, 0.1, remaining_steps=50.0)
    filling = run(*holds, first, second, third, nodes=TWO)
    assert started(filling) == names(third)
    assert filling._ahead_s == {"a": 150.0}


# Who leaves ------------------------------------------------------------------------------------------------


def test_who_leaves_and_when_by_type() -> None:
    a, b = on_type("a", 0, 1, left_s=50.0), on_type("b", 10, left_s=20.0)
    other = on_type("a", 2, left_s=10.0)
    nodes = (*make_nodes(3, type="a"), *TWO[1:], *make_nodes(1, type="c", first_id=20))
    filling = make(make_snapshot(a, b, other, nodes=nodes))
    assert filling.leaving == {
        "a": [(NOW + 10.0, 1, other), (NOW + 50.0, 2, a)],
        "b": [(NOW + 20.0, 1, b)],
        "c": [],
    }
    for at, whose in ((NOW + 9.0, None), (NOW + 10.0, other), (NOW + 49.0, other), (NOW + 50.0, a), (NOW + 99.0, a)):
        assert filling.freed_by(Slot(at, Gang("a", 1), 1.0)) is whose


def test_a_job_that_has_gpus_without_a_gang_is_counted_by_them() -> None:
    moving = trains(0, 1, left_s=60.0, state=State.CHECKPOINTING, gang=None)
    found = make(make_snapshot(moving, nodes=4)).leaving[GPU]
    assert [(at, count) for at, count, _ in found] == [(NOW + 60.0, 2)]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_of_three_on_one_gpu_the_last_end_counts(order: Sequence[int]) -> None:
    ends = [100.0, 300.0, 200.0]
    jobs = [trains(0, left_s=ends[n], gpu_milli=300, resizable=False) for n in order]
    found = make(make_snapshot(*jobs, nodes=2)).leaving[GPU]
    assert [(at, count, job.remaining_steps) for at, count, job in found] == [(NOW + 300.0, 1, 300.0)]
