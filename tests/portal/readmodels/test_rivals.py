"""Who competes for GPUs: what is said to be ahead of a job, and what idle nodes are kept from."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.core.cache import cache
from django.utils import timezone

from accounts.models import Project, Quota
from portal.jobs.clusters import default_cluster
from portal.jobs.models import Accelerator, Job, NodeWindow, Partition
from portal.live import streams
from tests.portal.api_calls import Api
from tests.portal.world import World

pytestmark = pytest.mark.django_db
FOUR, FIVE = {"min": 4, "max": 4}, {"min": 5, "max": 5}


@pytest.fixture
def world() -> World:
    cache.clear()
    return World({"a": 4, "b": 4, "c": 4}, policy="fifo_gang")


def partition(name: str, node: str) -> None:
    Partition.objects.create(cluster=default_cluster(), name=name, nodes=[node])


def before(world: World, job: Job) -> tuple[list[int], int]:
    found = Api(world.user).get(f"jobs/{job.number}/explanation").json
    return [other["number"] for other in found["ahead"]], found["apart"]


def nodes(world: World) -> dict[str, Any]:
    found: dict[str, Any] = streams.build(timezone.now(), "cluster")["cluster"]["nodes"]
    return found


def test_only_those_count_as_ahead_who_could_take_gpus_that_it_could_have(world: World) -> None:
    partition("left", "a")
    partition("right", "b")
    world.cluster.nodes.filter(name="c").update(accelerator_type="k9")
    for part in ("left", "right"):
        world.train(world.submit(gpus=FOUR, partition=part))
    spent = Project.objects.create(key="spent", name="Spent", parent=world.project)
    Quota.objects.create(project=spent, kind="gpu_hours", period="month", limit=0, hard=True)
    unknown = world.submit(gpus=FOUR, partition="left")
    Job.objects.filter(pk=unknown.pk).update(spec={**unknown.spec, "throughput": {"k9": [1.0] * 4}})
    never = world.submit(gpus=FOUR, partition="left")
    Job.objects.filter(pk=never.pk).update(min_gpus=9, max_gpus=9)
    parked = world.submit(gpus=FOUR, partition="left")
    Job.objects.filter(pk=parked.pk).update(project=spent)
    world.submit(gpus=FOUR, partition="left", dependencies=[{"type": "afterok", "job": parked.number}])
    world.submit(gpus=FOUR, partition="right")
    rival = world.submit(gpus=FOUR, partition="left")
    job = world.submit(gpus=FOUR, partition="left")
    world.round()
    tokens = [world.run(one).reason_token for one in (unknown, never, parked)]
    assert tokens == ["no_profile", "never", "quota_period"]
    assert before(world, job) == ([rival.number], 5)


def test_jobs_with_known_throughput_on_other_types_are_not_ahead(world: World) -> None:
    Accelerator.objects.filter(node__name="c").update(present=False)
    world.cluster.nodes.filter(name="b").update(accelerator_type="k2")
    for kind in ("k1", "k2"):
        world.train(world.submit(gpus=FOUR, throughput={kind: [1.0, 2.0, 3.0, 4.0]}))
    world.submit(gpus=FOUR, throughput={"k2": [1.0, 2.0, 3.0, 4.0]})
    job = world.submit(gpus=FOUR)
    world.round()
    assert before(world, job) == ([], 1)


def test_gangs_are_not_ahead_where_no_type_that_it_could_have_has_as_many(world: World) -> None:
    Accelerator.objects.filter(node__name="c").update(present=False)
    world.cluster.nodes.filter(name="b").update(accelerator_type="k2")
    Accelerator.objects.filter(node__name="b", index__gt=1).update(present=False)
    both = {"k1": [1.0, 2.0, 3.0, 4.0], "k2": [1.0, 2.0, 3.0, 4.0]}
    world.train(world.submit(gpus=FOUR))
    world.train(world.submit(gpus={"min": 2, "max": 2}, throughput={"k2": [1.0, 2.0]}))
    wide, small = world.submit(gpus=FOUR, throughput=both), world.submit(gpus={"min": 1}, throughput=both)
    job = world.submit(gpus={"min": 2, "max": 2}, throughput={"k2": [1.0, 2.0]})
    first = world.submit(gpus=FOUR)
    never = world.submit(gpus=FOUR)
    Job.objects.filter(pk=never.pk).update(min_gpus=9, max_gpus=9)
    world.round()
    assert before(world, job) == ([small.number], 1)
    assert before(world, first)[0] == [wide.number, small.number]
    assert before(world, never)[0] == []


def test_a_node_names_the_first_that_waits_for_gpus_and_could_have_some_there(world: World) -> None:
    partition("left", "a")
    partition("right", "b")
    world.train(world.submit(gpus={"min": 3, "max": 3}, partition="left"))
    never = world.submit(gpus=FOUR, partition="left")
    Job.objects.filter(pk=never.pk).update(min_gpus=9, max_gpus=9)
    first = world.submit(gpus=FOUR, partition="left")
    world.submit(gpus=FOUR, partition="left")
    world.round()
    seen = nodes(world)
    assert (seen["a"]["first_waiting"], seen["a"]["free_reason"]) == (first.number, "too few for the queue")
    assert (seen["b"]["first_waiting"], seen["b"]["free_reason"]) == (None, "no job that waits could have them now")


def test_nodes_behind_a_window_are_not_short_of_gpus(world: World) -> None:
    now = timezone.now()
    Accelerator.objects.filter(node__name="c").update(present=False)
    NodeWindow.objects.create(
        cluster=world.cluster,
        kind="maintenance",
        start_at=now,
        end_at=now + timedelta(hours=1),
        nodes=["a"],
        reason="new switches",
    )
    busy = world.submit(gpus={"min": 2, "max": 2})
    world.train(busy)
    waiting = world.submit(gpus=FOUR)
    world.round()
    seen = nodes(world)
    assert seen["a"]["first_waiting"] is None
    assert seen["a"]["free_reason"] == "no job that waits could have them now"
    assert seen["b"]["first_waiting"] in (None, waiting.number)
