"""Small parts of a round at each of their branches: limits by kind, waiting behind others, worth, and the meter."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scheduling.capacity.cluster_view import view
from scheduling.capacity.free_capacity import FreeCapacity
from scheduling.capacity.quota_headroom import _least, trim_to_quota
from scheduling.domain import WHOLE, Curve, Gang, Job, Snapshot
from scheduling.domain.wording import span
from scheduling.engine import accept
from scheduling.engine.state import Placement
from scheduling.engine.time_sharing import rounds as timesharing
from scheduling.engine.time_sharing.allocation_builder import AllocationBuilder
from scheduling.policies import load_policy
from scheduling.policies.queue.backfill import Backfill
from scheduling.simulator.meter import Meter
from tests.builders import make_job, make_nodes, make_snapshot
from tests.scheduling.engine.test_boundaries import limited_to

TYPE = "titan_xp"


# Limits -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("most", "gpus"), [(1, 4), (0, 0)])
def test_a_limit_of_jobs_bounds_no_gpus(most: int, gpus: int) -> None:
    snapshot = limited_to(most, make_job(min_gpus=1, max_gpus=6), kind="running_jobs")
    (job,) = snapshot.jobs
    kept, reasons = trim_to_quota(view(snapshot), {job.id: Gang(TYPE, 4)})
    assert kept.get(job.id, Gang(TYPE, 0)).count == gpus
    assert [reason.token for reason in reasons.values()] == ([] if gpus else ["quota_jobs"])


def test_a_job_that_is_to_leave_leaves_and_its_room_is_given_to_others() -> None:
    leaves, comes = make_job(holds=(0, 1, 2)), make_job(min_gpus=1, max_gpus=3)
    snapshot = limited_to(3, leaves, comes)
    kept, reasons = trim_to_quota(view(snapshot), {comes.id: Gang(TYPE, 3)})
    assert (kept, reasons) == ({comes.id: Gang(TYPE, 3)}, {})


@pytest.mark.parametrize(
    ("have", "least"),
    [(None, 2), (Gang(TYPE, 1), 2), (Gang(TYPE, 2), 2), (Gang(TYPE, 3), 3), (Gang("other", 3), 2)],
)
def test_who_has_gpus_of_the_type_gets_no_fewer(have: Gang | None, least: int) -> None:
    snapshot = make_snapshot(make_job(min_gpus=2, max_gpus=6))
    (job,) = snapshot.jobs
    assert _least(view(snapshot), job, Gang(TYPE, 5), have) == least


# Behind others ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (172_800, "2 days"),
        (172_799, "48 h"),
        (7_200, "2 h"),
        (7_199, "120 min"),
        (120, "2 min"),
        (119, "119 s"),
        (0, "0 s"),
    ],
)
def test_a_span_is_said_in_one_unit(seconds: float, said: str) -> None:
    assert span(seconds) == said


def backfill(snapshot: Snapshot, **more: Any) -> Backfill:
    field = view(snapshot)
    return Backfill(snapshot, field, FreeCapacity(snapshot, field), more.pop("kind", "easy"), default_s=500.0, **more)


@pytest.mark.parametrize(("sizes", "most", "count"), [("min", 4, 1), ("max", 4, 4), ("max", None, 1), ("min", None, 1)])
def test_jobs_start_at_their_least_unless_the_most_is_asked_for(sizes: Any, most: int | None, count: int) -> None:
    snapshot = make_snapshot(make_job(min_gpus=1, max_gpus=most))
    (job,) = snapshot.jobs
    assert {gang.count for gang in backfill(snapshot, sizes=sizes)._gangs(job)} == {count}


@pytest.mark.parametrize(("behind", "free", "ahead_s"), [(True, 0, 100.0), (False, 0, None), (True, 2, None)])
def test_only_a_job_that_waits_behind_others_adds_its_work(behind: bool, free: int, ahead_s: float | None) -> None:
    holds = make_job(gpus=2, holds=(0, 1), curve=Curve((0.5, 1.0)), remaining_steps=100.0)
    job = make_job(gpus=1, curve=Curve((1.0,)), remaining_steps=200.0)
    found = backfill(make_snapshot(holds, job, nodes=2 + free))
    slot = found._slot(job, [Gang(TYPE, 1)], behind=behind)
    assert slot is not None
    assert slot.at == (1_000.0 if free else 1_100.0)
    assert found._ahead_s.get(TYPE) == ahead_s
    found._slot(job, [Gang(TYPE, 1)], behind=behind)
    assert found._ahead_s.get(TYPE) == (ahead_s and 2 * ahead_s)


@pytest.mark.parametrize(("ahead_s", "kind"), [(0.0, "a"), (9.0, "a"), (11.0, "b")])
def test_a_job_that_waits_goes_where_it_ends_first_after_those_ahead(ahead_s: float, kind: str) -> None:
    nodes = (*make_nodes(1, type="a"), *make_nodes(1, type="b", first_id=1))
    one = Curve((1.0,))
    holds = [
        make_job(gpus=1, holds=(0,), type="a", curve=one, remaining_steps=100.0),
        make_job(gpus=1, holds=(1,), type="b", curve=one, remaining_steps=110.0),
    ]
    job = replace(make_job(gpus=1, remaining_steps=50.0), curves={"a": one, "b": one})
    found = backfill(make_snapshot(*holds, job, nodes=nodes))
    found._ahead_s["a"] = ahead_s
    slot = found._slot(job, [Gang("a", 1), Gang("b", 1)], behind=True)
    assert slot is not None
    assert slot.gang.type == kind


# Worth it ---------------------------------------------------------------------------------------------------


def worth(*jobs: Job, layout: Placement, parameters: dict[str, Any], **more: Any) -> Any:
    snapshot = make_snapshot(*jobs, **more)
    policy = load_policy("f_scheduling", {"min_gain": 0.0, "amortise": False, **parameters})
    return accept._not_worth_it(snapshot, view(snapshot), policy, layout)


@pytest.mark.parametrize(
    ("parameters", "speedup", "said"),
    [
        ({}, 1.0, None),
        ({"min_gain": 1.0}, 1.0, None),
        ({"min_gain": 1.01}, 1.0, "min_gain"),
        ({"min_gain": 0.5}, 2.0, None),
        ({"min_gain": 0.6}, 2.0, "min_gain"),
        ({"min_gain": 1.0, "min_gain_kind": "relative"}, 2.0, None),  # 1 step a second more than 1
        ({"min_gain": 1.1, "min_gain_kind": "relative"}, 1.0, "min_gain"),
        ({"amortise": False, "min_gain": 1.01}, 1.0, "min_gain"),
        ({"amortise": True, "min_gain": 1.01}, 1.0, None),
    ],
)
def test_a_change_has_to_add_enough(parameters: dict[str, Any], speedup: float, said: str | None) -> None:
    job = make_job(holds=(0,), curve=Curve((1.0, 2.0)))
    layout = Placement({job.id: (0, 1)}, {job.id: Gang(TYPE, 2)})
    found = worth(job, layout=layout, parameters=parameters, settings={"speedup": speedup})
    assert (found and found.token) == said


def test_a_change_pays_until_the_first_of_those_that_run_ends() -> None:
    grows = make_job(holds=(0,), curve=Curve((1.0, 2.0)), remaining_steps=1_000.0, restart_cost_s=40.0)
    ends = make_job(holds=(2,), curve=Curve((1.0,)), remaining_steps=30.0)
    layout = Placement({grows.id: (0, 1), ends.id: (2,)}, {grows.id: Gang(TYPE, 2), ends.id: Gang(TYPE, 1)})
    found = worth(grows, ends, layout=layout, parameters={"amortise": True})
    assert found is not None
    assert dict(found.detail) == {"gained_steps": 30.0, "lost_steps": 80.0}
    assert worth(grows, ends, layout=layout, parameters={"amortise": True}, next_event_s=81.0) is None


# Time sharing -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("waiting", "free", "compete"), [(0, 2, False), (1, 2, False), (2, 2, True), (3, 2, True), (3, 0, False)]
)
def test_several_compete_where_two_would_fit(waiting: int, free: int, compete: bool) -> None:
    holds = make_job(holds=(0,))
    queue = [make_job(gpus=2) for _ in range(waiting)]
    field = view(make_snapshot(holds, *queue, make_job(gpus=5), nodes=1 + free))
    assert timesharing._is_contended(field, AllocationBuilder(field)) is compete


# The meter --------------------------------------------------------------------------------------------------


def test_the_meter_keeps_a_level_for_as_long_as_it_lasts() -> None:
    meter = Meter(0.0)
    meter.advance(10.0)
    meter.train(2 * WHOLE, 1.0, 1)
    for at in (20.0, 20.0, 25.0):
        meter.advance(at)
    meter.train(WHOLE, 1.0, 1)
    meter.advance(30.0)
    meter.advance(29.0)  # nothing goes back
    assert (list(meter.times), list(meter.levels)) == ([0.0, 10.0, 25.0], [0, 2 * WHOLE, 3 * WHOLE])
    assert dict(meter.seconds_at) == {0: 10.0, 2 * WHOLE: 15.0, 3 * WHOLE: 5.0}
    assert (meter.gpu_seconds, meter.at) == (45.0, 30.0)


def test_the_mean_number_of_live_jobs_is_that_of_any_stretch() -> None:
    meter = Meter(0.0)
    for at, live in ((10.0, 2), (20.0, 4), (30.0, 0)):
        meter.advance(at)
        meter.live = live
    for start, end, mean in (
        (-10, 30, 1.5),
        (0, 30, 2.0),
        (10, 20, 2.0),
        (5, 15, 1.0),
        (15, 25, 3.0),
        (20, 30, 4.0),
        (30, 90, 0.0),
    ):
        assert meter.mean_live(start, end) == pytest.approx(mean)
    assert (meter.mean_live(5, 5), meter.mean_live(6, 5)) == (0.0, 0.0)


def test_shares_are_forgotten_exactly_when_no_job_trains() -> None:
    meter = Meter(0.0)
    for share in (0.1, 0.2, 0.7):
        meter.train(WHOLE, share, 1)
    for share in (0.7, 0.1, 0.2):
        meter.train(WHOLE, share, -1)
    meter.train(WHOLE, 0.5, 1)
    assert (meter.variance, meter.milli, meter.training) == (0.0, WHOLE, 1)
