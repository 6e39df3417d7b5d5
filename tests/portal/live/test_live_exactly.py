"""What the live streams say of each cluster, node, GPU and project, and of whom they say nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.utils import timezone
from psycopg2.extras import DateTimeTZRange

from accounts.models import Project, Quota, Rate
from portal.core.times import iso
from portal.jobs import events
from portal.jobs.models import Accelerator, Cluster, Hold, Job, Node, Run
from portal.lifecycle import launch_queue
from portal.live import streams as live_state
from portal.live.streams import MAX_ENDED, MAX_EVENTS, RECENT, _cell, _free_reason, _Part, _shared
from portal.reporting import timeouts
from scheduling.lifecycle import State
from tests.portal.cluster.test_clusters import second
from tests.portal.lifecycle.test_moves_together import change, commit, gpu_ids, launch, start
from tests.portal.lifecycle.test_services_exactly import queued
from tests.portal.world import World


@pytest.fixture
def world(db: None) -> World:
    return World()


def stream(name: str = "cluster") -> dict[str, Any]:
    return live_state.build(timezone.now())[name]


def trains(world: World, *gpus: int) -> Job:
    job = queued(world, gpus={"min": 1, "max": 4})
    commit(world, [start(job, *gpus)])
    launch(world)
    world.ready(job)
    world.unprotect(job)
    timeouts.advance_clock(cluster_id=world.cluster.pk, now=timezone.now())
    return job


# Whose jobs -------------------------------------------------------------------------------------------------


def test_a_stream_has_the_live_jobs_of_its_cluster_and_counts_those_that_wait(world: World) -> None:
    second(world, gpus=2, kind="k2")
    runs, waits = trains(world, gpu_ids()[0]), queued(world)
    away = world.submit()
    Job.objects.filter(pk=away.pk).update(cluster=Cluster.objects.get(name="other"))
    ended = queued(world)
    Run.objects.filter(job=ended).update(state=State.CANCELLED, ended_at=timezone.now())
    streams = live_state.build(timezone.now())
    here, there = streams["cluster"], streams["cluster:other"]
    assert set(here["jobs"]) == {str(runs.number), str(waits.number)}
    assert set(there["jobs"]) == {str(away.number)}
    assert here["queue"] == [waits.number]
    tiles = here["tiles"]
    assert (tiles["running"], tiles["queued"], tiles["gpus_busy"], tiles["gpus_total"]) == (1, 1, 1, 4)
    assert tiles["utilisation"] == 0.25
    assert (there["tiles"]["queued"], there["tiles"]["gpus_total"], there["tiles"]["utilisation"]) == (1, 2, 0.0)
    assert here["jobs"][str(runs.number)] == {
        "number": runs.number,
        "project": "Vision",
        "state": "running",
        "gpus": 1,
        "share_percent": None,
    }
    assert set(streams["project:vision"]["jobs"]) == {str(one.number) for one in (runs, waits, away, ended)}


@pytest.mark.parametrize(("ago", "shown"), [(RECENT - timedelta(seconds=5), True), (RECENT, False)])
def test_what_ended_is_shown_for_a_while(world: World, ago: timedelta, shown: bool) -> None:
    job = queued(world)
    now = timezone.now()
    Run.objects.update(state=State.CANCELLED, ended_at=now - ago)
    found = live_state.build(now)
    assert (str(job.number) in found["project:vision"]["jobs"]) is shown
    assert found["cluster"]["jobs"] == {}


def test_of_many_that_ended_the_latest_are_shown(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (MAX_ENDED, MAX_EVENTS) == (200, 50)
    monkeypatch.setattr(live_state, "MAX_ENDED", 2)
    now = timezone.now()
    jobs = [queued(world) for _ in range(3)]
    for job, minutes in zip(jobs, (1, 3, 2), strict=True):
        Run.objects.filter(job=job).update(state=State.CANCELLED, ended_at=now - timedelta(minutes=minutes))
    shown = live_state.build(now)["project:vision"]["jobs"]
    assert set(shown) == {str(jobs[0].number), str(jobs[2].number)}


def test_only_the_stream_that_is_asked_for_is_made(world: World) -> None:
    second(world, gpus=2, kind="k2")
    Project.objects.create(key="speech", name="Speech")
    now = timezone.now()
    assert set(live_state.build(now)) == {"cluster", "cluster:other", "project:vision", "project:speech"}
    for name in ("cluster", "cluster:other", "project:speech"):
        assert list(live_state.build(now, only=name)) == [name]
    assert live_state.build(now, only="project:none") == {}


def test_without_a_cluster_there_is_nothing(db: None) -> None:
    Project.objects.create(key="speech", name="Speech")
    assert live_state.build(timezone.now()) == {}


def test_a_project_counts_what_its_jobs_have_and_names_its_own_limit(world: World) -> None:
    trains(world, *gpu_ids()[:2])
    part = queued(world)
    Job.objects.filter(pk=part.pk).update(gpu_share_percent=50, min_gpus=1, max_gpus=1)
    commit(world, [start(part, gpu_ids()[2])])
    launch(world)
    queued(world)
    Quota.objects.create(project=world.project, kind="gpus", limit=7)
    Quota.objects.create(project=world.project, user=world.user, kind="gpus", limit=5)
    found = stream("project:vision")["project"]
    assert (found["gpu_limit"], found["gpus_allocated"]) == (7, 3)  # a GPU share takes a whole one
    assert (found["key"], found["name"]) == ("vision", "Vision")


# Events -----------------------------------------------------------------------------------------------------


def test_the_newest_events_of_the_project_or_of_the_cluster_are_told(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_state, "MAX_EVENTS", 2)
    second(world, gpus=2, kind="k2")
    other = Project.objects.create(key="speech", name="Speech")
    now = timezone.now()
    for number in range(3):
        events.append(kind="round", text=f"Round {number}", at=now)
        events.append(kind="notice", project=world.project, text=f"vision {number}", at=now)
        events.append(kind="notice", project=other, text=f"speech {number}", at=now)

    def told(name: str) -> list[str]:
        return [event["text"] for event in stream(name)["events"].values()]

    assert told("project:vision") == ["vision 2", "vision 1"]
    assert told("project:speech") == ["speech 2", "speech 1"]
    assert told("cluster") == ["Round 2", "Round 1"]


def test_an_event_says_what_whose_and_when(world: World) -> None:
    job = world.submit()
    at = timezone.now()
    event = events.append(kind="notice", job=job, run=job.run, at=at, text="odd", detail={"n": 1})
    found = live_state.describe_event(event)
    assert (found["id"], found["kind"], found["text"], found["detail"]) == (event.pk, "notice", "odd", {"n": 1})
    assert (found["job"], found["project"]) == ({"number": job.number, "name": job.name}, "vision")
    alone = live_state.describe_event(events.append(kind="round", text="Round", at=at))
    assert (alone["job"], alone["project"], alone["at"]) == (None, None, found["at"])


# Nodes and GPUs ---------------------------------------------------------------------------------------------


def test_a_node_says_what_its_gpus_do_and_what_they_cost(world: World) -> None:
    first, second_, third, _ = gpu_ids()
    runs = trains(world, first)
    commit(world, [start(queued(world), third)])
    Rate.objects.update(price_micro_per_hour=2_000_000)
    node = stream()["nodes"]["a"]
    assert {index: cell["state"] for index, cell in node["accelerators"].items()} == {
        "0": "held",
        "1": "free",
        "2": "assigned",
        "3": "free",
    }
    assert node["accelerators"]["0"] == {"state": "held", "job": runs.number, "kind": "running", "next": None}
    assert (node["gpus"], node["allocated"], node["price_per_hour"]) == (4, 1, "2.00")
    assert (node["type"], node["emulated"], node["schedulable"], node["lost"]) == ("k1", True, True, False)
    assert (node["memory_mib"], node["cpus"], node["host_memory_mib"]) == (1_000, 8, 1_000)
    assert stream()["tiles"]["spend_per_hour"] == "2.00"
    commit(world, [change(runs, "rescale", [second_])])
    cells = stream()["nodes"]["a"]["accelerators"]
    assert (cells["0"]["next"], cells["0"]["kind"], cells["1"]["state"]) == (None, "moving", "assigned")


def test_a_part_of_a_gpu_costs_and_counts_as_a_part(world: World) -> None:
    job = queued(world, gpus={"min": 1, "max": 1})
    Job.objects.filter(pk=job.pk).update(gpu_share_percent=25)
    commit(world, [start(job, gpu_ids()[0])])
    launch(world)
    Rate.objects.update(price_micro_per_hour=2_000_000)
    found = stream()
    node = found["nodes"]["a"]
    part = {"job": job.number, "kind": "launching", "share_percent": 25}
    assert node["accelerators"]["0"] == {
        "state": "held",
        "job": job.number,
        "kind": "launching",
        "next": None,
        "parts": [part],
        "free_percent": 75,
    }
    assert (node["price_per_hour"], found["tiles"]["spend_per_hour"]) == ("0.50", "0.50")
    assert found["jobs"][str(job.number)]["share_percent"] == 25


def test_gpus_that_are_gone_or_of_another_cluster_are_not_shown(world: World) -> None:
    second(world, gpus=2, kind="k2")
    Accelerator.objects.filter(pk=gpu_ids()[1]).update(present=False)
    found = live_state.build(timezone.now())
    assert set(found["cluster"]["nodes"]["a"]["accelerators"]) == {"0", "2", "3"}
    assert found["cluster"]["nodes"]["a"]["gpus"] == 3
    assert [node["type"] for node in found["cluster:other"]["nodes"].values()] == ["k2"]


def test_what_ended_occupies_nothing(world: World) -> None:
    job = trains(world, gpu_ids()[0])
    world.gone(job, "done", step=1_000)
    assert Hold.objects.count() == 1
    assert stream()["nodes"]["a"]["allocated"] == 0


GPU: Any = SimpleNamespace(pk=1, node=SimpleNamespace(schedulable=True))


@pytest.mark.parametrize(
    ("held", "assigned", "cell"),
    [
        ([], [], {"state": "free"}),
        ([], [(5, "STANDBY", 100)], {"state": "assigned", "job": 5, "kind": "moving"}),
        ([(5, "RUNNING", 100)], [], {"state": "held", "job": 5, "kind": "running", "next": None}),
        (
            [(5, "LAUNCHING", 100)],
            [(5, "LAUNCHING", 100)],
            {"state": "held", "job": 5, "kind": "launching", "next": None},
        ),
        ([(5, "STOPPING", 100)], [(6, "STANDBY", 100)], {"state": "held", "job": 5, "kind": "moving", "next": 6}),
        ([(5, "CANCELLED", 100)], [], {"state": "held", "job": 5, "kind": "moving", "next": None}),
        (
            [(5, "RUNNING_PROTECTED", 50), (6, "RUNNING", 50)],
            [(6, "RUNNING", 50), (5, "RUNNING_PROTECTED", 50), (7, "STANDBY", 50)],
            {
                "state": "held",
                "job": 5,
                "kind": "protected",
                "next": 7,
                "parts": [
                    {"job": 5, "kind": "protected", "share_percent": 50},
                    {"job": 6, "kind": "running", "share_percent": 50},
                ],
                "free_percent": 0,
            },
        ),
    ],
)
def test_a_gpu_says_who_has_it_and_who_is_next(held: list[Any], assigned: list[Any], cell: dict[str, Any]) -> None:
    def by_gpu(parts: list[Any]) -> dict[int, list[_Part]]:
        return {1: [_Part(*part) for part in parts]} if parts else {2: [_Part(9, "RUNNING", 100)]}

    assert _cell(GPU, by_gpu(held), by_gpu(assigned), ()) == cell


def test_a_free_gpu_of_a_node_that_takes_nobody_is_draining() -> None:
    gpu: Any = SimpleNamespace(pk=1, node=SimpleNamespace(schedulable=False))
    assert _cell(gpu, {}, {}, {1}) == {"state": "draining"}


@pytest.mark.parametrize(("percents", "free"), [([100], None), ([99], 1), ([50, 50], 0), ([25], 75), ([60, 30], 10)])
def test_parts_are_shown_where_there_are_several_or_something_is_left(percents: list[int], free: int | None) -> None:
    found = _shared([_Part(number, "RUNNING", percent) for number, percent in enumerate(percents)])
    assert found.get("free_percent") == free
    assert len(found.get("parts", [])) == (0 if free is None else len(percents))


@pytest.mark.parametrize(
    ("columns", "hungry", "reason"),
    [
        ({"lost": True, "drained": True, "withheld": "checking"}, True, "lost"),
        ({"drained": True, "withheld": "checking"}, True, "drained"),
        ({"withheld": "checking", "first_waiting": 3}, True, "being checked"),
        ({"withheld": "failed"}, True, "failed its check"),
        ({"first_waiting": 3}, True, "too few for the queue"),
        ({"first_waiting": 0}, False, "too few for the queue"),
        ({}, True, "no job that waits could have them now"),
        ({}, False, "no job gains"),
    ],
)
def test_why_gpus_of_a_node_are_free(columns: dict[str, Any], hungry: bool, reason: str) -> None:
    node = {"lost": False, "drained": False, "withheld": None, "first_waiting": None} | columns
    assert _free_reason(node, hungry) == reason


def test_a_full_node_gives_no_reason_why_it_is_free(world: World) -> None:
    trains(world, *gpu_ids())
    assert "free_reason" not in stream()["nodes"]["a"]
    Node.objects.update(lost=True)
    assert "free_reason" not in stream()["nodes"]["a"]


# Tiles ------------------------------------------------------------------------------------------------------


def test_the_longest_wait_is_that_of_who_waits(world: World) -> None:
    runs = trains(world, gpu_ids()[0])
    jobs = [queued(world) for _ in range(2)]
    now = timezone.now()
    for job, hours in ((runs, 9), (jobs[0], 2), (jobs[1], 5)):
        Job.objects.filter(pk=job.pk).update(submitted_at=now - timedelta(hours=hours))
    tiles = live_state.build(now)["cluster"]["tiles"]
    assert tiles["oldest_wait_since_at"] == iso(now - timedelta(hours=5))
    Job.objects.filter(pk__in=[job.pk for job in jobs]).update(hold_kind="user", held_at=now)
    Run.objects.filter(job__in=jobs).update(state=State.CANCELLED, ended_at=now)
    tiles = live_state.build(now)["cluster"]["tiles"]
    assert (tiles["oldest_wait_since_at"], tiles["queued"]) == (None, 0)


def test_what_is_held_now_counts_into_the_month(world: World) -> None:
    job = trains(world, gpu_ids()[0])
    Rate.objects.update(price_micro_per_hour=3_600_000_000)  # one a second
    now = timezone.now()
    hold = Hold.objects.get(run=world.run(job))
    later = hold.started_at + timedelta(seconds=90)
    month = live_state.build(later)["cluster"]["tiles"]["spend_month"]
    assert month == "90.00" or later.month != now.month
    world.gone(job, "done", step=1_000)
    assert float(stream()["tiles"]["spend_month"]) > 0


def test_what_was_held_since_another_day_of_the_month_counts(world: World) -> None:
    trains(world, gpu_ids()[0])
    Rate.objects.update(price_micro_per_hour=3_600_000_000)  # one a second
    began = datetime(2026, 1, 7, 12, tzinfo=UTC)
    Hold.objects.update(during=DateTimeTZRange(began, None))
    for days, spent in ((2, 2 * 86_400), (31, 6 * 86_400 + 43_200)):
        tiles = live_state.build(began + timedelta(days=days))["cluster"]["tiles"]
        assert float(tiles["spend_month"]) == spent


def test_who_has_ended_counts_into_no_mean(world: World) -> None:
    first, second_ = trains(world, gpu_ids()[0]), trains(world, gpu_ids()[1])
    both = stream()["tiles"]["relative_throughputs"]
    world.gone(second_, "done", step=1_000)
    tiles = stream()["tiles"]
    assert (len(both), len(tiles["relative_throughputs"])) == (2, 1)
    assert tiles["mean_relative_throughput"] == pytest.approx(tiles["relative_throughputs"][0], abs=1e-4)
    assert world.state(first) is State.RUNNING


def test_the_cluster_says_which_policy_and_round_it_is_at(world: World) -> None:
    Cluster.objects.update(
        policy_parameters={"v_bound": 0.5}, round_epoch=7, last_error="odd", figures={"rejected": "too many"}
    )
    found = stream()
    assert found["cluster"]["policy"] == {
        "name": "f_scheduling",
        "parameters": {"v_bound": 0.5},
        "v_bound": 0.5,
    }
    assert (found["cluster"]["round"], found["cluster"]["problem"], found["cluster"]["rejected"]) == (
        7,
        "odd",
        "too many",
    )
    assert found["tiles"]["v_bound"] == 0.5
    at = timezone.now()
    events.append(kind="notice", project=world.project, text="x", at=at)
    assert stream()["cluster"]["last_event_at"] == iso(at)


def test_a_plan_that_is_not_launched_yet_holds_nothing(world: World) -> None:
    commit(world, [start(queued(world), gpu_ids()[0])])
    found = stream()
    assert (found["tiles"]["gpus_busy"], found["nodes"]["a"]["price_per_hour"]) == (0, "0.00")
    launch_queue.launch_ready(cluster_id=world.cluster.pk, now=timezone.now())
    assert stream()["tiles"]["gpus_busy"] == 1
