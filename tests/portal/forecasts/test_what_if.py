"""What if: other GPU counts and types for a job, one more node for a project, by the estimate and the forecast."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from django.core.cache import cache
from django.utils import timezone

from accounts.models import Membership, Project, Quota, User
from portal.api.http import rates
from portal.forecasts import basis, what_if_tasks
from portal.jobfile.parsing import parse_job_file
from portal.jobs.models import Accelerator, Cluster, Job, Node, Partition
from portal.submission.submit import submit_job
from scheduling.domain import Gang
from scheduling.forecast.what_if import NEW_NODE, sized, with_node
from scheduling.lifecycle import State
from tests.builders import make_job, make_nodes, make_snapshot
from tests.portal.api_calls import Api
from tests.portal.world import CURVES, World

pytestmark = pytest.mark.django_db
DRAFT = {"command": "train", "project": "vision", "total_steps": 2_800, "throughput": {"k1": CURVES["fast"]}}


@pytest.fixture(autouse=True)
def _no_old_answers() -> None:
    cache.clear()


@pytest.fixture
def world() -> World:
    """One job has all of the four GPUs for about 1,000 s."""
    world = World(policy="fifo_gang")
    world.train(world.submit(steps=28_000, gpus={"min": 4, "max": 4}))
    return world


def add_type(world: World) -> None:
    """Two GPUs that are faster, and free."""
    node = Node.objects.create(cluster=world.cluster, name="z", accelerator_type="k2")
    for index in range(2):
        Accelerator.objects.create(node=node, index=index, uuid=f"z-{index}", memory_mib=1000)
    world.cluster.refresh_from_db()


def foreseen(api: Api, said: dict[str, Any]) -> dict[str, Any]:
    path = f"what-ifs/{said['what_if']}"
    assert api.get(path).json["status"] == "pending"
    what_if_tasks.foresee_what_if(said["what_if"])
    found: dict[str, Any] = api.get(path).json
    assert found["status"] == "done"
    return found


def seconds(text: str | None) -> float:
    assert text is not None
    return (datetime.fromisoformat(text) - timezone.now()).total_seconds()


# A job ------------------------------------------------------------------------------------------------------


def test_a_draft_has_run_time_and_cost_by_count_as_the_estimate_has_them(world: World) -> None:
    api = Api(world.user)
    said = api.post("jobs/what-if?gpus=1,2,4", DRAFT).json
    assert [(one["type"], one["gpus"]) for one in said["options"]] == [("k1", 1), ("k1", 2), ("k1", 4)]
    for option in said["options"]:
        assert option["duration_s"] == pytest.approx(2_800 / CURVES["fast"][option["gpus"] - 1], abs=1e-3)
    fixed = api.post("jobs/estimate", DRAFT | {"gpus": {"min": 2, "max": 2}}).json["options"][0]
    two = said["options"][1]
    assert [two[key] for key in ("amount", "low", "high", "duration_s")] == [
        fixed[key] for key in ("amount", "low", "high", "duration_s")
    ]
    assert (said["job"], said["running"], said["steps"]) == (None, False, 2_800)
    assert Job.objects.count() == 1


def test_starts_are_those_of_the_queue_and_ends_follow(world: World) -> None:
    add_type(world)
    draft = DRAFT | {"throughput": {"k1": CURVES["fast"], "k2": [100.0, 140.0]}}
    api = Api(world.user)
    said = api.post("jobs/what-if?gpus=1,2", draft).json
    found = {(one["type"], one["gpus"]): one for one in foreseen(api, said)["options"]}
    assert set(found) == {("k1", 1), ("k1", 2), ("k2", 1), ("k2", 2)}
    assert seconds(found["k2", 1]["start"]["p90_at"]) < 10  # they are free
    assert seconds(found["k1", 1]["start"]["p50_at"]) == pytest.approx(1_000, rel=0.15)
    for option in said["options"]:
        end = found[option["type"], option["gpus"]]
        took = seconds(end["end"]["at"]) - seconds(end["start"]["p50_at"])
        assert took == pytest.approx(option["duration_s"], abs=0.1)


def test_a_job_that_waits_keeps_its_place(world: World) -> None:
    mine = world.submit(steps=2_800, gpus={"min": 4, "max": 4})
    world.submit(steps=28_000, gpus={"min": 4, "max": 4})
    api = Api(world.user)
    said = api.post(f"jobs/{mine.number}/what-if?gpus=2,4").json
    assert (said["job"], said["running"]) == (mine.number, False)
    for option in foreseen(api, said)["options"]:
        assert seconds(option["start"]["p50_at"]) == pytest.approx(1_000, rel=0.15)


def test_a_job_that_runs_is_asked_of_what_is_left(world: World) -> None:
    running = Job.objects.get()
    world.report(running, step=14_000)
    api = Api(world.user)
    said = api.post(f"jobs/{running.number}/what-if?gpus=1,4").json
    assert (said["running"], said["steps"]) == (True, 14_000)
    assert said["options"][1]["duration_s"] == pytest.approx(500)
    found = foreseen(api, said)["options"]
    assert seconds(found[0]["start"]["p50_at"]) < 60  # its own GPUs are free then
    assert world.gpus(running) == 4


def test_what_bars_an_option_is_said_and_is_not_foreseen(world: World) -> None:
    Quota.objects.create(project=world.project, kind="gpus", limit=6, hard=True)
    api = Api(world.user)
    said = api.post("jobs/what-if?gpus=2,4,8", DRAFT).json
    two, four, eight = said["options"]
    assert two["barred"] == []
    assert four["barred"] == ["The limit of 6 GPUs at once on project Vision has 4 in use, and this job needs 4 more."]
    assert eight["barred"][-1] == "There are 4 × k1."
    assert [one["gpus"] for one in foreseen(api, said)["options"]] == [2]


def test_other_types_than_its_file_allows_are_compared_too(world: World) -> None:
    add_type(world)
    draft = DRAFT | {"throughput": {"k1": CURVES["fast"], "k2": [100.0, 140.0]}, "gpus": {"types": ["k1"]}}
    api = Api(world.user)
    said = api.post("jobs/what-if?gpus=2&types=k2", draft).json
    assert said["options"][0]["duration_s"] == pytest.approx(20.0)
    assert seconds(foreseen(api, said)["options"][0]["start"]["p90_at"]) < 10


def test_an_option_of_unknown_speed_says_nothing_more(world: World) -> None:
    add_type(world)
    said = Api(world.user).post("jobs/what-if?gpus=1&types=k1", DRAFT | {"throughput": {"k2": [1.0]}}).json
    assert said["options"][0]["duration_s"] is None
    assert said["what_if"] is None


def test_partitions_bound_a_job(world: World) -> None:
    partition = Partition.objects.create(cluster=world.cluster, name="small", nodes=["a"], max_gpus=1)
    partition.projects.add(world.project)
    said = Api(world.user).post("jobs/what-if?gpus=1,2", DRAFT | {"partition": "small"}).json
    assert said["options"][0]["barred"] == []
    assert said["options"][1]["barred"] == ["In partition small a job has 1 GPUs at most."]


@pytest.mark.parametrize(
    ("query", "field"),
    [("gpus=0", "gpus.0"), ("types=k9", "types"), ("gpus=1,2,3,4,5,6,7,8,9", "gpus"), ("gpus=x", "gpus.0")],
)
def test_what_is_wrong_is_named(world: World, query: str, field: str) -> None:
    answer = Api(world.user).post(f"jobs/what-if?{query}", DRAFT)
    assert (answer.status, answer.fields) == (400, [field])


def test_one_that_has_ended_is_too_late(world: World) -> None:
    job = Job.objects.get()
    job.runs.update(state=State.FINISHED, ended_at=timezone.now())
    cache.clear()
    assert Api(world.user).post(f"jobs/{job.number}/what-if").status == 409


def test_others_jobs_and_others_answers_are_not_found(world: World) -> None:
    other = Api(User.objects.create_user("other@example.org", "x"))
    assert other.post(f"jobs/{Job.objects.get().number}/what-if").status == 404
    mine = Api(world.user).post("jobs/what-if", DRAFT).json["what_if"]
    assert other.get(f"what-ifs/{mine}").status == 404


def test_nobody_asks_too_often(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "MOST_WHAT_IFS", 2)
    api = Api(world.user)
    assert [api.post("jobs/what-if?gpus=1", DRAFT).status for _ in range(3)] == [200, 200, 429]


# A node -----------------------------------------------------------------------------------------------------


def test_with_one_more_node_my_job_starts_sooner_and_the_price_is_said(world: World) -> None:
    mine = world.submit(steps=2_800, gpus={"min": 4, "max": 4}, name="mine")
    api = Api(world.user)
    said = api.post("projects/vision/what-if", {"type": "k1"}).json
    assert (said["gpus"], said["nodes_now"], said["gpus_now"]) == (4, 1, 4)
    assert said["price"]["per_gpu_hour"] == "1.234567"
    found = foreseen(api, said)["node"]
    [waiting] = found["waiting"]
    assert waiting["job"] == {"number": mine.number, "name": "mine"}
    assert waiting["sooner_s"] == pytest.approx(1_000, rel=0.15)
    assert seconds(waiting["start_after"]["p90_at"]) < 10
    assert waiting["gang_after"] == {"type": "k1", "count": 4}
    assert seconds(waiting["end_after_at"]) == pytest.approx(100, abs=15)
    assert (found["others_sooner"], found["others_growing"]) == (0, 0)


def test_my_elastic_job_grows_onto_it() -> None:
    world = World({"a": 2})
    world.train(job := world.submit(steps=100_000))
    world.round()
    assert world.gpus(job) == 2
    api = Api(world.user)
    found = foreseen(api, api.post("projects/vision/what-if", {"type": "k1"}).json)["node"]
    [grown] = found["running"]
    assert grown["job"]["number"] == job.number
    assert (grown["now"]["count"], grown["before"]["count"], grown["after"]["count"]) == (2, 2, 4)


def test_of_others_only_how_many_is_said(world: World) -> None:
    speech = Project.objects.create(key="speech", name="Speech")
    outsider = User.objects.create_user("out@example.org", "x")
    Membership.objects.create(project=speech, user=outsider)
    document = DRAFT | {"project": "speech", "name": "their-secret", "gpus": {"min": 4, "max": 4}}
    submit_job(user=outsider, job_file=parse_job_file(document))
    api = Api(world.user)
    answer = foreseen(api, api.post("projects/vision/what-if", {"type": "k1"}).json)
    assert "their-secret" not in str(answer)
    assert answer["node"]["waiting"] == []
    assert answer["node"]["others_sooner"] == 1
    assert Api(outsider).post("projects/vision/what-if", {"type": "k1"}).status == 404


def test_a_type_that_is_not_here_is_named(world: World) -> None:
    answer = Api(world.user).post("projects/vision/what-if", {"type": "k9"})
    assert (answer.status, answer.fields) == (400, ["type"])


def test_a_snapshot_some_seconds_old_serves_many(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the preview's own, made once for all who ask at a time."""
    made: list[int] = []
    monkeypatch.setattr(basis, "_LEAST_S", 60.0)
    monkeypatch.setattr(basis, "_STALE_S", 60)
    original = basis.renew

    def renew(cluster: Cluster) -> basis.Basis:
        made.append(cluster.pk)
        return original(cluster)

    monkeypatch.setattr(basis, "renew", renew)
    api = Api(world.user)
    for _ in range(3):
        api.post("jobs/what-if?gpus=1", DRAFT)
    assert len(made) == 1


# The snapshot -----------------------------------------------------------------------------------------------


def test_the_new_node_is_like_the_largest_of_its_type() -> None:
    nodes = (*make_nodes(2, 8), *make_nodes(4, type="v100", first_id=100))
    more = with_node(make_snapshot(nodes=nodes), "titan_xp")
    assert more is not None
    added = more.nodes[-1]
    assert (added.name, added.type, len(added.gpu_ids)) == (NEW_NODE, "titan_xp", 8)
    assert not {gpu for node in nodes for gpu in node.gpu_ids} & set(added.gpu_ids)
    assert with_node(make_snapshot(nodes=nodes), "k9") is None


def test_a_job_of_another_size_queues_where_it_was() -> None:
    job = make_job(holds=(0, 1), priority=7)
    other = sized(job, Gang("v100", 4))
    assert (other.min_gpus, other.max_gpus, other.types, other.gpu_ids) == (4, 4, ("v100",), ())
    assert (other.priority, other.submitted_at, other.id) == (7, job.submitted_at, job.id)
