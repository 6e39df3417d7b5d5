"""Policy, nodes, live streams, events and the catalogue."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from django.conf import settings

from accounts.models import AuditEntry, Membership, Project, User
from portal.jobs.models import Cluster, Job, ModelType, Node, Run
from scheduling.policies import POLICIES
from tests.portal.api_calls import Api
from tests.portal.world import World

pytestmark = pytest.mark.django_db


@pytest.fixture
def world(embedded_services: Any) -> World:
    client = redis.Redis.from_url(settings.REDIS_URL)
    for key in client.scan_iter("live:*"):
        client.delete(key)
    return World()


@pytest.fixture
def boss(world: World) -> Api:
    return Api(User.objects.create_superuser("root@example.org", "x"))


def test_every_policy_comes_with_its_schema(api: Api) -> None:
    kinds = {kind["name"]: kind for kind in api.get("policies").json}
    assert set(kinds) == set(POLICIES)
    assert kinds["f_scheduling"]["schema"]["properties"]["v_bound"]["maximum"] == 1.0
    said = [kind["description"] for kind in kinds.values()]
    assert all(said)
    assert len(set(said)) == len(POLICIES)
    assert not any("\n" in text or "Subclass" in text for text in said)


def test_billing_weights_are_of_types_that_there_are(world: World, boss: Api) -> None:
    refused = boss.put("policy", {"name": "multifactor", "parameters": {"billing_weights": {"k1": 2, "zz": 4}}})
    assert refused.status == 400
    assert "parameters.billing_weights" in refused.text
    assert "no accelerator type zz is in the cluster; there are k1" in refused.text
    refused = boss.put("policy", {"name": "multifactor", "parameters": {"weight_resources": {"gpu": 2, "zz": 4}}})
    assert refused.status == 400
    assert "parameters.weight_resources" in refused.text
    chosen = {"name": "multifactor", "parameters": {"billing_weights": {"k1": 2}, "weight_resources": {"gpu": 1}}}
    assert boss.put("policy", chosen).status == 200


def test_a_policy_is_chosen_audited_and_undone(boss: Api) -> None:
    boss.put("policy", {"name": "f_scheduling", "parameters": {"v_bound": 0.1}})
    chosen = boss.put("policy", {"name": "static_partition", "parameters": {"n": 2}})
    assert (chosen.status, chosen.json["name"], chosen.json["can_undo"]) == (200, "static_partition", True)
    assert chosen.json["changed_by"] == "root@example.org"
    assert AuditEntry.objects.filter(action="policy.set", target="static_partition").exists()
    undone = boss.post("policy/undo")
    assert (undone.json["name"], undone.json["parameters"]["v_bound"]) == ("f_scheduling", 0.1)
    history = boss.get("policy/history").json["results"]
    assert [change["name"] for change in history] == ["f_scheduling", "static_partition", "f_scheduling"]
    assert boss.post("policy/undo").status == 409


def test_a_wrong_choice_names_the_parameter(boss: Api) -> None:
    before = Cluster.objects.get().policy_parameters
    for body, field in (
        ({"name": "no_such"}, "name"),
        ({"name": "f_scheduling", "parameters": {"v_bound": 2}}, "parameters.v_bound"),
        ({"name": "f_scheduling", "parameters": {"v_bund": 0.1}}, "parameters.v_bund"),
        ({"name": "static_partition", "parameters": {"n": "\x00"}}, "parameters.n"),
        ({"parameters": {}}, "name"),
    ):
        refused = boss.put("policy", body)
        assert (refused.status, refused.fields) == (400, [field])
    known = boss.put("policy", {"name": "no_such"}).json["detail"]
    assert all(name in known for name in POLICIES)
    assert Cluster.objects.get().policy_parameters == before


def test_the_notes_say_when_a_bound_never_binds(world: World, boss: Api) -> None:
    assert "never binds" in str(
        boss.put("policy", {"name": "f_scheduling", "parameters": {"v_bound": 0.5}}).json["notes"]
    )
    world.train(world.submit())
    assert "With the jobs of now" in str(boss.get("policy").json["notes"])


def test_the_notes_say_how_far_greedy_is_from_exact(world: World, boss: Api) -> None:
    chosen = boss.put("policy", {"name": "f_scheduling_exact", "parameters": {"v_bound": 1.0}})
    assert "last round" not in str(chosen.json["notes"])
    for curve in ("fast", "slow", "fast"):
        world.submit(curve)
    world.round()
    assert "In the last round the greedy plan was" in str(boss.get("policy").json["notes"])
    for figures, words in (
        ({"exact": 1.0, "gap": 0.25}, "20.0% below the exact one"),
        ({"exact": 1.0, "gap": -1e-12}, "as good as the exact one"),
        ({"exact": 1.0}, "would not have kept the bound"),
        ({"exact": 0.0, "gap": 0.1}, "greedy plan was used"),
    ):
        Cluster.objects.update(figures=figures)
        assert words in boss.get("policy").json["notes"][-1]
    boss.put("policy", {"name": "f_scheduling", "parameters": {"v_bound": 1.0}})
    assert "last round" not in str(boss.get("policy").json["notes"])


def test_changes_are_for_administrators(world: World, api: Api) -> None:
    assert api.get("policy").status == 200
    assert api.put("policy", {"name": "fifo_gang"}).status == 403
    assert api.post("policy/undo").status == 403
    assert api.post("nodes/a/drain").status == 403
    assert Cluster.objects.get().policy_name == "f_scheduling"
    assert not Node.objects.get().drained


def test_a_node_is_drained_and_resumed(boss: Api) -> None:
    assert boss.post("nodes/a/drain").json["schedulable"] is False
    assert boss.post("nodes/a/drain").status == 200
    assert Node.objects.get().drained
    assert boss.post("nodes/a/resume").json["schedulable"] is True
    assert AuditEntry.objects.filter(target="a").count() == 2
    for unknown in ("b", "a%00", "..%2f", "%F0%9F%9A%82"):
        assert boss.post(f"nodes/{unknown}/drain").status == 404


def test_nodes_show_who_holds_what(world: World, api: Api) -> None:
    world.train(job := world.submit())
    (node,) = api.get("nodes").json
    assert [gpu["state"] for gpu in node["accelerators"]] == ["held"] * 4
    assert {gpu["job"]["number"] for gpu in node["accelerators"]} == {job.number}
    stranger = Api(User.objects.create_user("eve@example.org", "x"))
    assert {gpu["job"]["name"] for gpu in stranger.get("nodes").json[0]["accelerators"]} == {None}


def test_live_streams_answer_in_every_phase_of_a_job(world: World, api: Api) -> None:
    first = world.submit()
    world.round()
    client = redis.Redis.from_url(settings.REDIS_URL)
    for step in (lambda: world.ready(first), world.submit, world.round, lambda: world.gone(first, "done", step=1000)):
        step()
        for stream in ("cluster", "project:vision"):
            client.delete(f"live:streams:{stream}")
            answer = api.get(f"live/{stream}")
            assert (answer.status, answer.json["stream"]) == (200, stream)
    for unknown in ("project:other", "project:", "nonsense", "project:%00"):
        assert api.get(f"live/{unknown}").status == 404


def test_events_are_those_of_my_projects_and_the_cluster(world: World, api: Api) -> None:
    other = Project.objects.create(key="speech", name="Speech")
    eve = User.objects.create_user("eve@example.org", "x")
    Membership.objects.create(project=other, user=eve)
    world.submit()
    world.submit(user=eve, project="speech")
    assert {event["project"] for event in api.get("events").json["results"]} == {"vision", None}
    assert {event["project"] for event in api.get("events?project=vision").json["results"]} == {"vision"}
    answer = api.get("events?project=speech")
    assert (answer.status, answer.json["errors"][0]["field"]) == (404, "project")
    assert {event["kind"] for event in api.get("events?kind=submitted").json["results"]} == {"submitted"}


def test_only_runs_on_real_accelerators_count_as_seen(world: World, api: Api) -> None:
    digits = ModelType.objects.create(name="digits", title="Digits", argv=["python"])
    for number, (emulated, trained) in enumerate([(False, True), (True, True), (False, False)]):
        job = world.submit(name=f"run {number}")
        Job.objects.filter(pk=job.pk).update(model_type=digits)
        Run.objects.filter(job=job).update(emulated=emulated, has_trained=trained)
    assert [kind["runs_seen"] for kind in api.get("model-types").json] == [1]


def test_the_catalogue_has_curves_for_types_of_the_cluster(world: World, api: Api) -> None:
    curves = {"k1": {"steps_per_s": [5, 9]}, "elsewhere": {"steps_per_s": [1]}}
    ModelType.objects.create(name="digits", title="Digits", argv=["python"], curves=curves)
    ModelType.objects.create(name="gone", title="Gone", argv=["python"], enabled=False)
    (digits,) = api.get("model-types").json
    assert list(digits["curves"]) == ["k1"]
    assert digits["runs_seen"] == 0
    assert digits["curves"]["k1"]["steps_per_s"] == [5.0, 9.0]
    (kind,) = api.get("accelerator-types").json
    assert (kind["name"], kind["count"], kind["price_per_gpu_hour"]) == ("k1", 4, "1.234567")
