"""A node's page: who is there, how much of it was held in a day, what failed on it, and what happened to it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from accounts.models import Membership, Project, User
from portal.jobs import events
from portal.jobs.models import Accelerator, Hold, Job, JobEvent, Node, Run
from portal.jobs.models.activity import RunActivity
from portal.readmodels.cluster import node as node_page
from portal.readmodels.cluster.node import BUCKET_S, BUCKETS, MOST, Span, held_seconds
from scheduling.lifecycle import State
from tests.portal.api_calls import Api
from tests.portal.world import World

DAY_S = BUCKET_S * BUCKETS
FROM_S = 1_700_000_000.0
GPUS = 4
times = st.floats(-DAY_S, 2 * DAY_S, allow_nan=False).map(lambda s: FROM_S + s)


@st.composite
def holds_of_gpus(draw: st.DrawFn) -> list[Span]:
    """On each of a few GPUs holds one after the other, each of the whole GPU or a part of it."""
    spans: list[Span] = []
    for _ in range(GPUS):
        ends = sorted(draw(st.lists(times, max_size=8)))
        for start, end in zip(ends[::2], ends[1::2], strict=False):
            spans.append((start, end, draw(st.integers(1, 100)) / 100))
    return spans


@given(holds_of_gpus())
def test_buckets_add_up_to_what_was_held_and_none_is_overfull(spans: list[Span]) -> None:
    found = held_seconds(spans, FROM_S)
    inside = [(max(start, FROM_S), min(end, FROM_S + DAY_S), part) for start, end, part in spans]
    assert sum(found) == pytest.approx(sum(max(0.0, end - start) * part for start, end, part in inside), abs=1e-3)
    assert len(found) == BUCKETS
    assert all(0 <= seconds <= BUCKET_S * GPUS + 1e-3 for seconds in found)


def test_a_hold_is_filed_under_the_half_hours_that_it_reaches_into() -> None:
    found = held_seconds([(FROM_S + 900, FROM_S + BUCKET_S + 600, 0.5)], FROM_S)
    assert found[:3] == [450.0, 300.0, 0.0]


@pytest.fixture
def world(db: None) -> World:
    return World({"a": 2, "b": 2})


@pytest.fixture
def bo(world: World) -> Api:
    """Somebody of another project."""
    user = User.objects.create_user("bo@example.org", "x")
    Membership.objects.create(project=Project.objects.create(key="speech", name="Speech"), user=user)
    return Api(user)


def training(world: World, gpus: int = 2, **keys: Any) -> tuple[Job, str]:
    """A job that trains, and the node that it is on."""
    job = world.submit(gpus={"min": gpus, "max": gpus}, **keys)
    world.train(job)
    hold = Hold.objects.select_related("accelerator__node").filter(run=world.run(job), during__upper_inf=True)[0]
    return job, hold.accelerator.node.name


def failing(world: World, reason: str = "user_error", **keys: Any) -> tuple[Job, str]:
    """One that trained and failed for good."""
    job, name = training(world, retry={"limit": 0}, **keys)
    world.gone(job, reason, exit_code=1, message="boom")
    return job, name


def page(api: Api, name: str) -> Any:
    answer = api.get(f"nodes/{name}")
    assert answer.status == 200, answer.text
    return answer.json


class TestTheNode:
    def test_it_is_as_in_the_list(self, world: World, api: Api) -> None:
        job, name = training(world)
        (listed,) = [node for node in api.get("nodes").json if node["name"] == name]
        found = page(api, name)
        assert {key: found[key] for key in listed} == listed
        assert {gpu["job"]["number"] for gpu in found["accelerators"]} == {job.number}

    def test_there_is_none_of_another_name(self, api: Api) -> None:
        for unknown in ("c", "a%00", "%F0%9F%9A%82"):
            assert api.get(f"nodes/{unknown}").status == 404

    def test_a_drain_is_said_with_who_is_still_there(self, world: World, api: Api) -> None:
        job, name = training(world)
        boss = Api(User.objects.create_superuser("root@example.org", "x"))
        boss.post(f"nodes/{name}/drain", {"reason": "new fans"})
        drain = page(api, name)["drain"]
        assert (drain["state"], drain["reason"]) == ("draining", "new fans")
        assert [row["job"]["number"] for row in drain["jobs"]] == [job.number]


class TestJobs:
    def test_who_holds_its_gpus_is_said_with_since_when(self, world: World, api: Api) -> None:
        job, name = training(world, name="quick")
        (row,) = page(api, name)["jobs"]
        assert row["job"] == {"number": job.number, "name": "quick", "project": "Vision"}
        assert (row["gpus"], row["share_percent"]) == (2, 100)
        started = Hold.objects.filter(run=world.run(job)).order_by("during")[0].started_at
        assert abs((datetime.fromisoformat(row["since_at"]) - started).total_seconds()) < 0.01

    def test_of_others_jobs_the_name_is_not_said(self, world: World, bo: Api) -> None:
        job, name = training(world, name="secret-name")
        (row,) = page(bo, name)["jobs"]
        assert row["job"] == {"number": job.number, "name": None, "project": "Vision"}
        assert "secret-name" not in bo.get(f"nodes/{name}").text

    def test_who_is_only_assigned_holds_nothing_yet(self, world: World, api: Api) -> None:
        _, name = training(world)
        Hold.objects.all().delete()
        (row,) = page(api, name)["jobs"]
        assert (row["gpus"], row["since_at"]) == (2, None)

    def test_how_busy_its_gpus_are_is_said_of_ones_own_jobs_and_of_the_node(
        self, world: World, api: Api, bo: Api
    ) -> None:
        job, name = training(world)
        run = world.run(job)
        assert (page(api, name)["busy_part"], page(api, name)["jobs"][0]["busy_part"]) == (None, None)
        now = timezone.now()
        measured = {"epoch": run.epoch, "measured_at": now, "utilisation": [0.9, 0.7]}
        fresh = {"accelerator_type": "a", "gpu_hundredths": 200, "heard_at": now, "stepped_at": now, "busy_at": now}
        RunActivity.objects.update_or_create(run=run, defaults=fresh | measured)
        assert (page(api, name)["busy_part"], page(api, name)["jobs"][0]["busy_part"]) == (0.8, 0.8)
        assert (page(bo, name)["busy_part"], page(bo, name)["jobs"][0]["busy_part"]) == (0.8, None)
        RunActivity.objects.update(measured_at=now - node_page.MEASURED_OVER)
        assert page(api, name)["busy_part"] is None
        RunActivity.objects.update(measured_at=now, epoch=run.epoch + 1)
        assert page(api, name)["busy_part"] is None

    def test_a_part_of_a_gpu_is_said_as_one(self, world: World, api: Api) -> None:
        job = world.submit(gpus=0.5)
        world.train(job)
        (there,) = [node for node in ("a", "b") if page(api, node)["jobs"]]
        (row,) = page(api, there)["jobs"]
        assert (row["gpus"], row["share_percent"]) == (1, 50)


class TestUse:
    def test_holds_of_the_last_day_are_parts_of_its_gpus(self, world: World, api: Api) -> None:
        """One of two GPUs from four to two hours ago, and before the day began."""
        JobEvent.objects.all().delete()
        run = world.run(world.submit())
        gpu, now = Accelerator.objects.filter(node__name="a")[0], timezone.now()
        for since, until, percent in ((4, 2, 100), (30, 25, 100), (1, 0.5, 50)):
            during = (now - timedelta(hours=since), now - timedelta(hours=until))
            Hold.objects.create(run=run, accelerator=gpu, epoch=1, share_percent=percent, during=during)
        use = page(api, "a")["use"]
        assert (use["bucket_s"], len(use["allocated"])) == (1_800, 48)
        assert use["allocated_part"] == pytest.approx((2 + 0.25) / 48, abs=2e-4)
        assert sum(part for _, part in use["allocated"]) == pytest.approx(2 + 0.25, abs=2e-3)
        assert all(0 <= part <= 0.5 for _, part in use["allocated"])
        assert max(use["allocated"], key=lambda point: point[1])[1] == pytest.approx(0.5, abs=1e-3)
        from_s = datetime.fromisoformat(use["from_at"]).timestamp()
        assert [at for at, _ in use["allocated"]] == pytest.approx([from_s + 1_800 * i for i in range(48)], abs=0.01)

    def test_before_it_joined_nothing_is_known(self, world: World, api: Api) -> None:
        training(world, gpus=2)
        use = page(api, "a")["use"]
        assert [part for _, part in use["allocated"]][:-1] == [None] * 47
        assert use["allocated"][-1][1] == use["allocated_part"] is not None
        JobEvent.objects.filter(kind="node_joined", detail__node="a").update(at=timezone.now() - timedelta(hours=2))
        assert sum(part is None for _, part in page(api, "a")["use"]["allocated"]) in (43, 44)

    def test_a_node_without_gpus_has_no_part(self, world: World, api: Api) -> None:
        Accelerator.objects.filter(node__name="a").update(present=False)
        use = page(api, "a")["use"]
        assert (use["allocated_part"], {part for _, part in use["allocated"]}) == (None, {None})


class TestFaults:
    def test_runs_that_failed_there_are_said_newest_first(self, world: World, api: Api) -> None:
        first, name = failing(world, name="one")
        second, there = failing(world, "out_of_memory", name="two")
        assert name == there
        found = page(api, name)
        assert [(row["job"]["number"], row["reason"]) for row in found["faults"]] == [
            (second.number, "out_of_memory"),
            (first.number, "user_error"),
        ]
        assert found["faults"][1]["attempt"] == 1
        assert "boom" in found["faults"][1]["text"]
        assert found["faults_by_reason"] == {"out_of_memory": 1, "user_error": 1}
        other = "b" if name == "a" else "a"
        assert page(api, other)["faults"] == []
        assert page(api, other)["faults_by_reason"] == {}

    def test_others_are_counted_but_neither_named_nor_quoted(self, world: World, bo: Api) -> None:
        job, name = failing(world, name="secret-name")
        found = page(bo, name)
        (row,) = found["faults"]
        assert row["job"] == {"number": job.number, "name": None, "project": "Vision"}
        assert (row["reason"], row["text"]) == ("user_error", None)
        assert found["faults_by_reason"] == {"user_error": 1}
        answer = bo.get(f"nodes/{name}").text
        assert "secret-name" not in answer
        assert "boom" not in answer

    def test_only_where_its_last_launch_was_and_only_of_the_last_week(self, world: World, api: Api) -> None:
        job, name = failing(world)
        run = Run.objects.get(job=job)
        Run.objects.filter(pk=run.pk).update(epoch=run.epoch + 1)
        assert page(api, name)["faults"] == []
        Run.objects.filter(pk=run.pk).update(epoch=run.epoch, ended_at=timezone.now() - timedelta(days=8))
        assert page(api, name)["faults"] == []
        Run.objects.filter(pk=run.pk).update(epoch=run.epoch, ended_at=timezone.now() - timedelta(days=6))
        assert len(page(api, name)["faults"]) == 1

    def test_what_ended_well_or_was_cancelled_is_no_fault(self, world: World, api: Api) -> None:
        job, name = training(world, steps=10)
        world.report(job, step=10)
        world.gone(job, "done", step=10)
        assert State(Run.objects.get(job=job).state) is State.FINISHED
        assert page(api, name)["faults"] == []

    def test_the_newest_are_named_and_all_are_counted(self, world: World, api: Api) -> None:
        job, name = failing(world)
        run, gpu = Run.objects.get(job=job), Accelerator.objects.filter(node__name=name)[0]
        at = run.ended_at - timedelta(hours=1) if run.ended_at else timezone.now()
        for attempt in range(2, MOST + 7):
            one = Run.objects.create(
                job=job, attempt=attempt, state=State.FAILED, epoch=1, ended_at=at, exit={"reason": "signal"}
            )
            during = (at - timedelta(minutes=attempt), at - timedelta(minutes=attempt - 1))
            Hold.objects.create(run=one, accelerator=gpu, epoch=1, during=during)
        found = page(api, name)
        assert len(found["faults"]) == MOST
        assert found["faults_by_reason"] == {"signal": MOST + 5, "user_error": 1}


class TestEvents:
    def test_what_happened_to_it_is_said_newest_first_and_nothing_of_others(self, world: World, api: Api) -> None:
        boss = Api(User.objects.create_superuser("root@example.org", "x"))
        boss.post("nodes/a/drain", {"reason": "new fans"})
        boss.post("nodes/a/resume")
        world.reachable["a"] = False
        world.inventory()
        world.reachable["a"] = True
        world.inventory()
        kinds = [event["kind"] for event in page(api, "a")["events"]]
        assert kinds == ["node_back", "node_lost", "node_resumed", "node_drained", "node_joined"]
        (joined,) = page(api, "b")["events"]
        assert (joined["kind"], joined["text"]) == ("node_joined", "b joined with 2 × k1")

    def test_it_ends_with_the_newest_and_with_the_season(self, world: World, api: Api) -> None:
        for _ in range(MOST + 1):
            events.append(kind="node_lost", text="a is lost", at=timezone.now(), detail={"node": "a"})
        assert len(page(api, "a")["events"]) == MOST
        JobEvent.objects.filter(detail__node="a").update(at=timezone.now() - node_page.EVENTS_OVER)
        assert page(api, "a")["events"] == []


def test_statements_do_not_grow_with_what_is_there(world: World, api: Api) -> None:
    def count() -> int:
        with CaptureQueriesContext(connection) as asked:
            page(api, name)
        return len(asked)

    began = timezone.now() - timedelta(hours=20)
    hours = ((began + timedelta(hours=n), began + timedelta(hours=n, minutes=9)) for n in range(9))
    failing(world)
    _, name = training(world)
    page(api, name)
    few = count()
    grown: list[Callable[[], object]] = [
        lambda: events.append(kind="node_lost", text="lost", at=timezone.now(), detail={"node": name}),
        lambda: Hold.objects.create(
            run=Run.objects.create(
                job=world.submit(), attempt=9, state=State.FAILED, epoch=1, ended_at=timezone.now(), exit=None
            ),
            accelerator=Node.objects.get(name=name).accelerators.all()[0],
            epoch=1,
            during=next(hours),
        ),
    ]
    for _ in range(5):
        for grow in grown:
            grow()
    found = page(api, name)
    assert len(found["events"]) > 5
    assert found["faults_by_reason"]["unknown"] == 5
    assert count() == few
