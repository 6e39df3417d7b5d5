"""`?cluster=`: what of one cluster the API shows and changes; prices, shares and live streams of one."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.cache import cache
from django.utils import timezone

from accounts.ledger import PriceBook, current_prices
from accounts.models import LedgerEntry
from accounts.rates import set_rate
from portal.cluster.drains import drain_node
from portal.jobs.models import Cluster, JobEvent
from portal.live import publish
from portal.live import streams as live_state
from portal.snapshot.take import take_snapshot
from tests.portal.api_calls import Api
from tests.portal.cluster.test_clusters import second
from tests.portal.world import World

pytestmark = pytest.mark.django_db


@pytest.fixture
def world() -> World:
    cache.clear()
    world = World({"a": 4})
    second(world, gpus=2, kind="k2")
    return world


READS = [
    "nodes", "nodes/a", "policy", "policy/history", "idle-rule", "partitions", "windows", "priorities", "shares",
    "shares/history", "fairness", "fairness/history", "fairness/ended", "timeline", "history", "model-types",
    "accelerator-types", "rounds", "rollouts", "rollouts/proposal",
]  # fmt: skip


@pytest.mark.parametrize("path", READS)
def test_each_view_is_of_the_cluster_that_is_named(root: Api, path: str) -> None:
    assert root.get(path).status == root.get(f"{path}?cluster=other").status == 200
    wrong = root.get(f"{path}?cluster=third")
    assert (wrong.status, wrong.fields) == (400, ["cluster"])
    assert "there are test, other" in wrong.json["errors"][0]["message"]


def test_nodes_and_types_are_those_of_the_cluster(root: Api) -> None:
    assert [node["type"] for node in root.get("nodes").json] == ["k1"]
    assert [node["type"] for node in root.get("nodes?cluster=other").json] == ["k2"]
    assert root.get("nodes/a?cluster=other").json["type"] == "k2"
    assert [one["name"] for one in root.get("accelerator-types?cluster=other").json] == ["k2"]


def test_a_change_is_of_the_cluster_that_is_named(root: Api, world: World) -> None:
    assert root.put("policy?cluster=other", {"name": "fifo_gang", "parameters": {}}).json["name"] == "fifo_gang"
    assert root.put("partitions/day?cluster=other", {"nodes": ["a"], "is_default": True}).status == 201
    assert root.put("idle-rule?cluster=other", {"warn_after_s": 60, "release_after_s": None}).status == 200
    assert root.post("nodes/a/drain?cluster=other", {"reason": "fans"}).json["drained"]
    now = timezone.now()
    times = {"start_at": now.isoformat(), "end_at": now.replace(year=now.year + 1).isoformat()}
    assert root.post("windows?cluster=other", {"kind": "maintenance", "all_nodes": True, **times}).status == 201
    assert root.get("policy").json["name"] == "f_scheduling"
    assert root.get("partitions").json["results"] == root.get("windows").json["results"] == []
    assert not root.get("nodes/a").json["drained"]
    assert len(root.get("windows?cluster=other").json["results"]) == 1
    world.cluster.refresh_from_db()
    assert world.cluster.default_partition is None


def test_a_round_is_of_its_cluster(root: Api, world: World) -> None:
    world.submit(cluster="test")
    world.round()
    (kept,) = root.get("rounds").json["results"]
    assert root.get(f"rounds/{kept['round']}").json["cluster"] == "test"
    assert root.get(f"rounds/{kept['round']}?cluster=other").status == 404


# Prices ----------------------------------------------------------------------------------------------


def test_a_price_of_a_cluster_stands_before_the_one_of_all(root: Api, world: World) -> None:
    said = root.post("prices", {"accelerator_type": "k1", "cluster": "other", "price_per_hour": "9"})
    assert (said.status, said.json["cluster"]) == (201, "other")
    now, project = timezone.now(), world.project.pk
    assert current_prices(now) == {"k1": 1_234_567}
    assert current_prices(now, "other") == {"k1": 9_000_000}
    book = PriceBook(now)
    assert book.price_at(project, "gpu", "k1", now) == (1_234_567, 10_000)
    assert book.price_at(project, "gpu", "k1", now, "other") == (9_000_000, 10_000)
    assert book.price_at(project, "gpu", "k1", now, "test") == (1_234_567, 10_000)
    assert [rate["cluster"] for rate in root.get("prices?cluster=other").json["results"]] == ["other"]
    assert root.post("prices", {"accelerator_type": "k1", "cluster": "third", "price_per_hour": "9"}).status == 400


def test_the_ledger_bills_at_the_price_of_the_cluster(world: World) -> None:
    other = Cluster.objects.get(name="other")
    set_rate(actor=None, accelerator_type="k2", price_micro_per_hour=1_000_000)
    set_rate(actor=None, accelerator_type="k2", price_micro_per_hour=7_000_000, cluster="other")
    job = world.submit(cluster="other", throughput={"k2": [9.0]}, gpus={"min": 1, "max": 1})
    world.cluster = other
    world.train(job)
    world.gone(job)
    assert {entry.price_micro_per_hour for entry in LedgerEntry.objects.filter(resource="gpu")} == {7_000_000}


# Shares ----------------------------------------------------------------------------------------------


def test_a_project_may_weigh_otherwise_on_a_cluster(root: Api, world: World) -> None:
    said = root.patch("projects/vision", {"share_weight": 2, "cluster_shares": {"other": 5}})
    assert (said.status, said.json["share_weight"], said.json["cluster_shares"]) == (200, 2.0, {"other": 5.0})
    weights = {
        cluster.name: take_snapshot(cluster, timezone.now()).snapshot.entities["vision"].weight
        for cluster in Cluster.objects.all()
    }
    assert weights == {"test": 2.0, "other": 5.0}
    assert root.patch("projects/vision", {"cluster_shares": {"other": None}}).json["cluster_shares"] == {}
    assert root.patch("projects/vision", {"cluster_shares": {"third": 1}}).fields == ["cluster_shares.third"]


def test_its_own_managers_do_not_set_it(world: World) -> None:
    world.user.memberships.update(role="manager")
    assert Api(world.user).patch("projects/vision", {"cluster_shares": {"other": 5}}).status == 403


# Live ------------------------------------------------------------------------------------------------


def test_each_cluster_has_a_stream(world: World) -> None:
    here, there = world.submit(cluster="test"), world.submit(cluster="other", throughput={"k2": [9.0]})
    node = Cluster.objects.get(name="other").nodes.get()
    drain_node(actor=None, node=node, now=timezone.now(), reason="fans")
    streams = live_state.build(timezone.now())
    assert [name for name in streams if name.startswith("cluster")] == ["cluster", "cluster:other"]
    assert list(streams["cluster"]["jobs"]) == [str(here.number)]
    assert list(streams["cluster:other"]["jobs"]) == [str(there.number)]
    assert {node["type"] for node in streams["cluster:other"]["nodes"].values()} == {"k2"}
    drained = str(JobEvent.objects.get(kind="node_drained").pk)
    assert drained in streams["cluster:other"]["events"]
    assert drained not in streams["cluster"]["events"]
    assert set(streams["project:vision"]["jobs"]) == {str(here.number), str(there.number)}
    assert publish.allowed_streams(world.user) == {"cluster", "cluster:other", "project:vision"}
    assert list(live_state.build(timezone.now(), only="cluster:other")) == ["cluster:other"]


def test_the_session_names_the_clusters(world: World) -> None:
    said = Api(world.user).get("session").json
    engine = {"engine": "This machine", "engine_away_since_at": None}
    assert said["clusters"] == [
        {"name": "test", "stream": "cluster", **engine},
        {"name": "other", "stream": "cluster:other", **engine},
    ]
    assert said["cluster"]["name"] == "test"


def test_metrics_carry_the_cluster(world: World, settings: Any) -> None:
    settings.EVENKEEL_METRICS_TOKEN = "t"
    answer = Api().client.get("/metrics", headers={"Authorization": "Bearer t"}).content.decode()
    assert 'evenkeel_gpus{cluster="other",state="free",type="k2"} 2.0' in answer
    assert 'evenkeel_gpus{cluster="test",state="free",type="k1"} 4.0' in answer
