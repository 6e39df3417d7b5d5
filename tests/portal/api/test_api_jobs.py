"""Jobs over HTTP: list, look, submit, cancel."""

from __future__ import annotations

from typing import Any

import pytest

from accounts.models import Membership, Project, User
from portal.jobs.models import Job
from tests.portal.api_calls import Api
from tests.portal.world import World

pytestmark = pytest.mark.django_db
PATHS = [
    *["session", "jobs", "events", "projects", "model-types", "accelerator-types", "nodes", "tokens", "timeline"],
    *["policies", "policy", "policy/history", "live/cluster", "live/project:vision", "history"],
]
PARTS = ["events", "metrics", "timeline", "cost", "explanation", "logs"]
FILE: dict[str, Any] = {"command": "python train.py", "project": "vision", "total_steps": 1000, "gpus": {"max": 4}}


def test_a_submitted_job_is_found_again(api: Api) -> None:
    made = api.post("jobs", FILE)
    assert made.status == 201
    assert made.headers["Location"].endswith(f"/api/v1/jobs/{made.json['number']}")
    assert made.json["state"] == "queued"
    for reference in (made.json["number"], made.json["id"]):
        assert api.get(f"jobs/{reference}").json["spec"]["command"] == "python train.py"
    assert [job["number"] for job in api.get("jobs").json["results"]] == [made.json["number"]]


def test_yaml_is_a_job_file_too(api: Api) -> None:
    text = "command: python train.py\nproject: vision\ntotal_steps: 1000\nmemory: 8GiB\n"
    made = api.post("jobs", text, content_type="application/yaml")
    assert made.status == 201
    assert Job.objects.get().spec["memory"] == 8192


def test_the_core_endpoints_answer_as_documented(world: World, api: Api) -> None:
    job = world.submit()
    world.submit("slow")
    for _ in range(2):
        for path in [*PATHS, f"jobs/{job.number}", *(f"jobs/{job.number}/{part}" for part in PARTS)]:
            assert api.get(path).status == 200, path
        world.train(job)


def test_cancelling_twice_is_cancelling_once(world: World, api: Api) -> None:
    job = world.submit()
    for _ in range(2):
        assert api.post(f"jobs/{job.number}/cancel").json["state"] == "cancelled"
    world.train(other := world.submit())
    world.gone(other, "done", step=1000)
    assert api.post(f"jobs/{other.number}/cancel").status == 409


def test_a_list_costs_the_same_for_few_and_many_jobs(
    world: World, api: Api, django_assert_max_num_queries: Any
) -> None:
    world.submit()
    world.round()
    for _ in range(2):
        world.submit()
    api.get("jobs")  # notes that the token was used
    with django_assert_max_num_queries(20) as few:
        assert len(api.get("jobs").json["results"]) == 3
    statements = len(few)
    assert statements > 3
    for _ in range(27):
        world.submit()
    with django_assert_max_num_queries(20) as many:
        assert len(api.get("jobs").json["results"]) == 30
    assert len(many) == statements


def test_jobs_of_other_projects_are_as_unknown_as_none(world: World) -> None:
    job = world.submit()
    stranger = Api(User.objects.create_user("eve@example.org", "x"))
    for path in ("jobs/{}", "jobs/{}/events"):
        there, nowhere = stranger.get(path.format(job.number)), stranger.get(path.format(10**9))
        assert (there.status, there.json) == (404, nowhere.json)
    assert stranger.post(f"jobs/{job.number}/cancel").status == 404
    assert stranger.get("jobs").json["results"] == []
    assert stranger.get("live/project:vision").status == 404


def test_a_viewer_reads_and_changes_nothing(world: World) -> None:
    viewer = User.objects.create_user("vic@example.org", "x")
    Membership.objects.create(project=world.project, user=viewer, role="viewer")
    api, job = Api(viewer), world.submit()
    assert api.get(f"jobs/{job.number}").status == 200
    assert api.post(f"jobs/{job.number}/cancel").status == 403
    refused = api.post("jobs", FILE)
    assert (refused.status, refused.fields) == (400, ["project"])
    assert Job.objects.count() == 1


def test_an_administrator_may_do_all(world: World) -> None:
    admin = Api(User.objects.create_superuser("root@example.org", "x"))
    Project.objects.create(key="speech", name="Speech")
    made = admin.post("jobs", FILE | {"priority": 5})
    assert made.status == 201
    assert admin.post(f"jobs/{made.json['id']}/cancel").status == 200


def test_priority_above_zero_is_for_administrators(api: Api) -> None:
    refused = api.post("jobs", FILE | {"priority": 1})
    assert (refused.status, refused.fields) == (403, ["priority"])
    assert api.post("jobs", FILE | {"priority": -1}).status == 201
