"""Submitting plans no round and plays no future, however many clusters there are."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest
from django.core.cache import cache
from django.db import connection
from django.test.utils import CaptureQueriesContext

from portal.jobs.models import Cluster, Job
from scheduling.engine.rounds import plan_round
from scheduling.forecast.forecast import foresee
from scheduling.forecast.next_round import preview
from scheduling.policies import load_policy
from tests.portal.api_calls import Api
from tests.portal.cluster.test_clusters import second
from tests.portal.world import World

pytestmark = pytest.mark.django_db
FILE: dict[str, Any] = {
    "command": "train",
    "project": "vision",
    "total_steps": 1_000,
    "throughput": {"k1": [10.0], "k2": [30.0]},
    "gpus": 1,
}


def _planned(*given: Any, **named: Any) -> NoReturn:
    raise AssertionError("a request planned")


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """Three clusters, all GPUs of the first taken and one more job waiting there; from now on nothing may be planned,
    by whatever name it was imported."""
    cache.clear()
    world = World({"a": 2})
    second(world, gpus=2, kind="k2")
    second(world, gpus=2, kind="k2", name="third")
    busy, *_ = [world.submit(cluster="test", gpus={"min": 1, "max": 1}) for _ in range(3)]
    world.train(busy)
    for function in (plan_round, foresee, preview):
        monkeypatch.setattr(function, "__code__", _planned.__code__)
    monkeypatch.setattr(type(load_policy("f_scheduling", {})), "allocate", _planned)
    return world


def test_the_guard_notices_a_plan(world: World) -> None:
    with pytest.raises(AssertionError, match="a request planned"):
        world.round()


@pytest.mark.parametrize("cluster", [None, "earliest", "cheapest", "test"])
@pytest.mark.parametrize("array", [None, "0-4"])
def test_a_job_and_an_array(world: World, cluster: str | None, array: str | None) -> None:
    keys = {key: value for key, value in (("cluster", cluster), ("array", array)) if value is not None}
    made = Api(world.user).post("jobs", FILE | keys)
    assert made.status == 201, made.json


def test_a_job_with_a_dependency_and_one_more_of_its_kind(world: World) -> None:
    api = Api(world.user)
    first = api.post("jobs", FILE).json["number"]
    assert api.post("jobs", FILE | {"dependencies": [{"type": "afterok", "job": first}]}).status == 201
    assert api.post(f"jobs/{first}/resubmit", {"total_steps": 2_000}).status == 201


def test_many_at_once(world: World) -> None:
    api = Api(world.user)
    numbers = [api.post("jobs", FILE).json["number"] for _ in range(3)]
    for number in numbers:
        assert api.post(f"jobs/{number}/cancel", {}).status == 200
    done = api.post("jobs/bulk", {"action": "resubmit", "ids": numbers})
    assert done.status == 200, done.json
    assert Job.objects.filter(resubmit_of__number__in=numbers).count() == 3


def test_one_that_no_cluster_can_run_is_refused(world: World) -> None:
    refused = Api(world.user).post("jobs", FILE | {"gpus": 9})
    assert (refused.status, refused.fields) == (400, ["cluster"])


def test_statements_do_not_grow_with_the_queue(world: World) -> None:
    api = Api(world.user)

    def statements() -> int:
        with CaptureQueriesContext(connection) as queries:
            assert api.post("jobs", FILE).status == 201
        return len(queries)

    statements()
    few = statements()
    for cluster in Cluster.objects.all():
        for _ in range(20):
            api.post("jobs", FILE | {"cluster": cluster.name})
    assert statements() <= few
