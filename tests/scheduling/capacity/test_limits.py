"""What limits leave, by kind and type, and plans cut down to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduling.capacity.cluster_view import view
from scheduling.capacity.quota_headroom import QuotaHeadroom, exceeds_quota, trim_to_quota
from scheduling.domain import Gang, Job, Limit, Snapshot
from scheduling.lifecycle import State
from tests.builders import make_curve, make_job, make_nodes, make_snapshot

TYPES = {"a": make_curve(), "b": make_curve()}
NODES = (*make_nodes(8, type="a"), *make_nodes(8, type="b", first_id=10))


def headroom(limits: Mapping[str, Limit], *jobs: Job) -> QuotaHeadroom:
    return QuotaHeadroom(view(make_snapshot(*jobs, nodes=NODES, limits=limits)))


def bound(*limits: str, **changes: Any) -> Job:
    return make_job(**{"curves": TYPES, "gpus": 1, "limits": limits, **changes})


def held(*gpus: int, limits: tuple[str, ...] = ("l",), **changes: Any) -> Job:
    return make_job(holds=gpus, type="a" if gpus[0] < 10 else "b", **{"curves": TYPES, "limits": limits, **changes})


# What is left ----------------------------------------------------------------------------------------------


def test_booking_takes_of_every_limit_of_the_job_and_gives_it_back() -> None:
    limits = {"all": Limit("gpus", 9), "a": Limit("gpus", 5, type="a"), "n": Limit("running_jobs", 3)}
    limits |= {"x": Limit("gpus"), "queue": Limit("queued_jobs", 9)}
    job = bound("all", "a", "n", "queue")
    left = headroom(limits, job)
    left.book(job, Gang("a", 4))
    assert left.left == {"all": 5, "a": 1, "n": 2, "x": 0}
    left.book(job, Gang("b", 2))
    assert left.left == {"all": 3, "a": 1, "n": 1, "x": 0}
    left.book(job, Gang("a", 4), -1)
    assert left.left == {"all": 7, "a": 5, "n": 2, "x": 0}


@pytest.mark.parametrize(("count", "over"), [(1, []), (2, []), (3, ["two"]), (4, ["two", "three"])])
def test_every_limit_that_has_no_room_is_named_outermost_first(count: int, over: list[str]) -> None:
    limits = {
        "two": Limit("gpus", 2),
        "three": Limit("gpus", 3),
        "other": Limit("gpus", 0),
        "jobs": Limit("running_jobs", 1),
    }
    job = bound("two", "three", "jobs")
    left = headroom(limits, job)
    assert list(left.all_over(job, Gang("a", count))) == over
    assert left.over(job, Gang("a", count)) == (over[0] if over else None)
    queue = make_job(limits=("queue", "two"))  # how many a round looks at bounds no gang
    assert headroom({**limits, "queue": Limit("queued_jobs", 1)}, queue).over(queue, Gang("a", 3)) == "two"
    turned = replace(job, limits=("three", "two"))
    assert left.over(turned, Gang("a", 4)) == "three"
    assert left.over(bound(), Gang("a", 9)) is None


def test_a_limit_of_a_type_that_is_passed_already_forbids_nothing_of_another() -> None:
    limits = {"l": Limit("gpus", 1, type="a")}
    left = headroom(limits, held(0, 1, 2), job := bound("l"))
    left.book(held(0, 1, 2), Gang("a", 3))
    assert left.left["l"] == -2
    assert list(left.all_over(job, Gang("b", 4))) == []
    assert list(left.all_over(job, Gang("a", 1))) == ["l"]


@pytest.mark.parametrize(
    ("limit", "on_a", "on_b"),
    [
        (Limit("gpus", 3), 3, 3),
        (Limit("gpus", 3, type="a"), 3, None),
        (Limit("gpus", 0), 0, 0),
        (Limit("running_jobs", 1), None, None),
        (Limit("running_jobs", 0), 0, 0),
        (Limit("running_jobs", 2), None, None),
    ],
)
def test_the_most_that_a_job_may_have(limit: Limit, on_a: int | None, on_b: int | None) -> None:
    job = bound("l", "queue")
    left = headroom({"l": limit, "other": Limit("gpus", 1), "queue": Limit("queued_jobs", 1)}, job)
    most = [left.most(job, kind) for kind in "ab"]
    assert [None if value > 10**9 else value for value in most] == [on_a, on_b]
    assert left.most(bound(), "a") > 10**9


def test_the_most_is_that_of_the_tightest() -> None:
    limits = {"five": Limit("gpus", 5), "two": Limit("gpus", 2), "jobs": Limit("running_jobs", 1)}
    left = headroom(limits, job := bound("five", "two", "jobs"))
    assert left.most(job, "a") == 2


# What is said ----------------------------------------------------------------------------------------------


def test_the_reason_is_that_of_the_smallest_gang_and_none_where_one_is_allowed() -> None:
    limits = {
        "a": Limit("gpus", 1, type="a", level="project Speech"),
        "b": Limit("gpus", 2, type="b", level="user ana"),
    }
    left = headroom(limits, job := bound("a", "b"))
    found = left.reason(job, [Gang("b", 3), Gang("a", 2)])
    assert found is not None
    assert (found.token, found.detail["limit"], found.detail["needs"]) == ("quota", "a GPUs at once", 2)
    assert found.text == "Project Speech may hold 1 a GPU, and other jobs have 0; this job needs at least 2."
    assert left.reason(job, [Gang("a", 2), Gang("b", 2)]) is None
    assert left.reason(job, []) is None


def test_what_others_have_of_a_limit_is_told() -> None:
    limits = {"l": Limit("gpus", 5, level="project Speech")}
    left = headroom(limits, job := bound("l"))
    left.book(job, Gang("a", 4))
    found = left.reason(job, [Gang("a", 2)])
    assert found is not None
    assert found.detail == {"level": "project Speech", "limit": "GPUs at once", "quota": 5, "holds": 4, "needs": 2}
    assert found.text == "Project Speech may hold 5 GPUs, and other jobs have 4; this job needs at least 2."


@pytest.mark.parametrize(
    ("most", "words"), [(1, "1 job running, and 1 goes before"), (2, "2 jobs running, and 2 go before")]
)
def test_a_limit_of_jobs_says_how_many_go_before(most: int, words: str) -> None:
    left = headroom({"l": Limit("running_jobs", most, level="user ana")}, job := bound("l"))
    for _ in range(most):
        assert left.reason(job, [Gang("a", 1)]) is None
        left.book(job, Gang("a", 3))
    found = left.reason(job, [Gang("a", 1)])
    assert found is not None
    assert found.token == "quota_jobs"
    assert f"User ana may have {words}" in found.text


def test_a_budget_that_is_used_up_says_so_in_its_own_words() -> None:
    limits = {"l": Limit("spent", text="The month is used up.", until=9.0)}
    left = headroom(limits, job := held(0))
    found = left.reason(job, [Gang("a", 2)])
    assert found is not None
    assert (found.token, found.text, found.detail["expected_start_at"]) == (
        "quota_period",
        "The month is used up.",
        9.0,
    )
    assert left.reason(job, [Gang("a", 1)]) is None  # what it holds


# Plans cut down --------------------------------------------------------------------------------------------


def cut(
    limits: Mapping[str, Limit], counts: Mapping[Job, Gang] | list[tuple[Job, Gang]], *others: Job
) -> tuple[dict[str, Gang], dict[str, str]]:
    pairs = list(counts.items()) if isinstance(counts, Mapping) else counts
    snapshot = make_snapshot(*(job for job, _ in pairs), *others, nodes=NODES, limits=limits)
    kept, reasons = trim_to_quota(view(snapshot), {job.id: gang for job, gang in pairs})
    return kept, {key: reason.token for key, reason in reasons.items()}


L5 = {"l": Limit("gpus", 5, level="project Speech")}


def test_a_job_that_runs_comes_before_who_starts_and_starts_follow_the_queue() -> None:
    last, first = bound("l", priority=0), bound("l", priority=9)
    runs = held(0, 1)
    kept, reasons = cut(L5, [(last, Gang("a", 2)), (first, Gang("a", 2)), (runs, Gang("a", 2))])
    assert kept == {runs.id: Gang("a", 2), first.id: Gang("a", 2), last.id: Gang("a", 1)}
    assert reasons == {}


@pytest.mark.parametrize(
    ("planned", "kept"),
    [
        (Gang("a", 1), Gang("a", 1)),
        (Gang("a", 3), Gang("a", 3)),
        (Gang("a", 5), Gang("a", 5)),
        (Gang("a", 6), Gang("a", 5)),
        (Gang("a", 8), Gang("a", 5)),
        (Gang("b", 5), Gang("b", 5)),
        (Gang("b", 6), Gang("b", 5)),
        (Gang("b", 1), Gang("b", 1)),
    ],
)
def test_a_job_that_runs_shrinks_grows_or_moves_within_the_limit(planned: Gang, kept: Gang) -> None:
    runs = held(0, 1, 2)
    assert cut(L5, [(runs, planned)])[0] == {runs.id: kept}


def test_who_grows_beyond_what_is_left_keeps_what_it_has() -> None:
    first, second = held(0, 1, 2), held(3, 4)
    kept, reasons = cut(L5, [(first, Gang("a", 4)), (second, Gang("a", 4))])
    assert kept == {first.id: Gang("a", 3), second.id: Gang("a", 2)}
    assert reasons == {}
    kept, _ = cut({"l": Limit("gpus", 2)}, [(first, Gang("a", 3)), (second, Gang("b", 4))])  # lowered meanwhile
    assert kept == {first.id: Gang("a", 3), second.id: Gang("a", 2)}


def test_what_one_gives_up_another_may_have() -> None:
    shrinks, grows = held(0, 1, 2), held(3, 4)
    kept, _ = cut(L5, [(shrinks, Gang("a", 1)), (grows, Gang("a", 4))])
    assert kept == {shrinks.id: Gang("a", 1), grows.id: Gang("a", 4)}
    starts = bound("l", priority=-1)
    assert cut(L5, [(shrinks, Gang("a", 1)), (starts, Gang("a", 4))])[0][starts.id] == Gang("a", 4)


def test_a_job_that_is_left_out_of_the_plan_takes_nothing_of_a_limit() -> None:
    runs, starts = held(0, 1, 2), bound("l", gpus=5)
    kept, _ = cut(L5, [(starts, Gang("a", 5))], runs)
    assert kept == {starts.id: Gang("a", 5)}


def test_a_job_that_has_no_room_says_why_with_its_least_gang() -> None:
    runs = held(0, 1, 2, 3)
    starts = bound("l", gpus=None, min_gpus=2, max_gpus=4)
    other = bound()
    kept, reasons = cut(L5, [(runs, Gang("a", 4)), (starts, Gang("a", 4)), (other, Gang("b", 7))])
    assert kept == {runs.id: Gang("a", 4), other.id: Gang("b", 7)}
    assert reasons == {starts.id: "quota"}
    late = bound("l")
    kept, reasons = cut(L5, [(runs, Gang("a", 4)), (starts, Gang("a", 4)), (late, Gang("a", 1))])
    assert kept[late.id] == Gang("a", 1)  # nobody is held up by one that a limit keeps back


def test_the_least_of_a_gang_is_what_trains() -> None:
    slow = bound("l", gpus=None, curves={"a": make_curve(0.0, 0.0, 1.0, 2.0)}, max_gpus=4)
    for most, count in ((2, None), (3, 3), (4, 4)):
        kept, _ = cut({"l": Limit("gpus", most)}, [(slow, Gang("a", 4))])
        assert (kept[slow.id].count if slow.id in kept else None) == count


def test_who_takes_no_part_is_left_as_the_policy_said() -> None:
    fixed = held(0, 1, held=True)
    starts = bound("l", gpus=4)
    kept, reasons = cut(L5, [(fixed, Gang("a", 2)), (starts, Gang("b", 4))])
    assert kept == {fixed.id: Gang("a", 2)}
    assert reasons == {starts.id: "quota"}


@pytest.mark.parametrize(("count", "passed"), [(2, False), (3, True), (4, True)])
def test_what_a_job_had_before_it_was_queued_again_is_no_longer_held(count: int, passed: bool) -> None:
    """It is reported with the gang that it had; its GPUs are gone."""
    again = replace(held(0, 1, 2, 3), state=State.WAITING_FOR_RESOURCE, gpu_ids=())
    snapshot = make_snapshot(again, nodes=NODES, limits={"l": Limit("gpus", 2)})
    assert exceeds_quota(view(snapshot), {again.id: Gang("a", count)}) == passed


@st.composite
def plans(draw: st.DrawFn) -> tuple[Snapshot, dict[str, Gang]]:
    limits = {
        "l": Limit("gpus", draw(st.integers(0, 8))),
        "a": Limit("gpus", draw(st.integers(0, 6)), type="a"),
        "n": Limit("running_jobs", draw(st.integers(0, 3))),
    }
    jobs, at = [], 0
    for _ in range(draw(st.integers(0, 2))):
        size = draw(st.integers(1, 3))
        jobs.append(held(*range(at, at + size), limits=tuple(draw(st.sets(st.sampled_from("lan"))))))
        at += size
    for _ in range(draw(st.integers(0, 3))):
        least = draw(st.integers(1, 3))
        names = tuple(draw(st.sets(st.sampled_from("lan"))))
        jobs.append(bound(*names, gpus=None, min_gpus=least, max_gpus=6, priority=draw(st.integers(0, 2))))
    counts = {}
    for job in jobs:
        if draw(st.booleans()) or job.gpu_ids:
            counts[job.id] = Gang(draw(st.sampled_from("ab")), draw(st.integers(job.min_gpus, 6)))
    return make_snapshot(*jobs, nodes=NODES, limits=limits), counts


@settings(max_examples=150, deadline=None)
@given(plans())
def test_a_plan_cut_down_breaks_no_limit_and_takes_nothing_from_a_job_that_runs(
    plan: tuple[Snapshot, dict[str, Gang]],
) -> None:
    snapshot, counts = plan
    field = view(snapshot)
    kept, reasons = trim_to_quota(field, counts)
    assert not exceeds_quota(field, kept)
    assert kept.keys() <= counts.keys()
    for job in snapshot.jobs:
        if job.id not in counts:
            continue
        planned, now = counts[job.id], kept.get(job.id)
        if job.gang is not None:
            assert now is not None
            assert planned.type != job.gang.type or now.count >= min(job.gang.count, planned.count)
        elif now is None:
            assert reasons[job.id].token in ("quota", "quota_jobs")
        else:
            assert (now.type, job.min_gpus <= now.count <= planned.count) == (planned.type, True)
    headroom = QuotaHeadroom(field)
    for job in field.candidates:
        if job.id in counts:
            headroom.book(job, counts[job.id])
    stay = all(job.gang is None or job.gang.type == counts[job.id].type for job in snapshot.jobs if job.id in counts)
    if stay and all(left >= 0 for left in headroom.left.values()):
        assert kept == counts
