"""A job once more with changes, and from a chosen checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from accounts.models import AuditEntry, Membership, Project, User
from portal.execution.launch_request import launch_request
from portal.jobs.models import Job
from scheduling.lifecycle import State
from tests.portal.api_calls import Api
from tests.portal.world import World, check_invariants

pytestmark = pytest.mark.django_db


@pytest.fixture
def world(settings: Any, tmp_path: Path) -> World:
    settings.EVENKEEL_DATA = tmp_path
    return World()


def resubmit(api: Api, job: Job, **changes: Any) -> Any:
    return api.post(f"jobs/{job.number}/resubmit", changes)


def trained(world: World, *steps: int, **keys: Any) -> Job:
    """A finished job with checkpoints at these steps."""
    job = world.submit(**keys)
    world.train(job)
    for step in steps:
        world.checkpoint(job, step)
    world.gone(job, "done", step=job.total_steps)
    return job


def put_files(data: Path, job: Job, step: int, *, size: int = 10, says: int = 10) -> None:
    place = data / "jobs" / str(job.pk) / "checkpoints" / f"step-{step}"
    place.mkdir(parents=True)
    (place / "manifest.json").write_text(json.dumps({"format": "json", "bytes": says, "step": step}))
    (place / "state.json").write_bytes(b"x" * size)


def test_a_job_is_submitted_once_more(world: World, api: Api) -> None:
    old = trained(world, env={"A": "1"}, labels={"run": "1", "team": "x"}, name="first")
    made = resubmit(api, old, batch_size=64, labels={"run": "2", "team": None}, gpus={"max": 2})
    assert made.status == 201
    assert made.json["resubmit_of"] == old.number
    assert made.json["number"] != old.number
    spec = api.get(f"jobs/{made.json['number']}").json["spec"]
    assert (spec["batch_size"], spec["labels"], spec["gpus"]["max"]) == (64, {"run": "2"}, 2)
    assert (spec["env"], spec["name"], spec["command"]) == ({"A": "1"}, "first", "train")
    assert made.json["step"] == 0
    assert api.post(f"jobs/{old.number}/resubmit").status == 201


def test_the_program_may_be_changed_for_another(world: World, api: Api) -> None:
    old = world.submit()
    assert resubmit(api, old, command="python other.py").json["command"] == "python other.py"
    assert resubmit(api, old, model_type="nothing").fields == ["model_type"]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"total_steps": 0}, "total_steps"),
        ({"gpus": {"min": 9, "max": 2}}, "gpus"),
        ({"batchsize": 3}, "batchsize"),
        ({"command": None}, "model_type"),
        ({"resume_from": "newest"}, "resume_from"),
        ({"resume_from": "latest"}, "resume_from.job"),
        ({"resume_from": {"step": 3}}, "resume_from.step"),
        ({"resume_from": {"job": 10**9}}, "resume_from.job"),
    ],
)
def test_what_is_wrong_with_the_changes_is_named(world: World, api: Api, changes: Any, field: str) -> None:
    refused = resubmit(api, world.submit(), **changes)
    assert (refused.status, refused.fields[0]) == (400, field)
    assert Job.objects.count() == 1


def test_it_resumes_from_the_newest_checkpoint(world: World, api: Api) -> None:
    old = trained(world, 200, 400)
    made = resubmit(api, old, resume_from="latest", total_steps=2000).json
    assert (made["step"], made["resumed_from"]) == (400, {"job": old.number, "step": 400})
    new = Job.objects.get(number=made["number"])
    world.round()
    request = launch_request(world.run(new), 1)
    assert (request.resume_job_id, request.resume_step) == (str(old.pk), 400)
    world.ready(new)
    world.gone(new, "user_error", exit_code=1)
    assert world.run(new).checkpoint_step == 400
    check_invariants(world)


def test_it_resumes_from_a_chosen_checkpoint(world: World, api: Api) -> None:
    old = trained(world, 200, 400)
    assert resubmit(api, old, resume_from={"step": 200}).json["step"] == 200
    refused = resubmit(api, old, resume_from={"step": 300})
    assert "wrote no checkpoint at step 300; it has those at 400, 200." in refused.json["detail"]


def test_only_checkpoints_that_are_kept_are_offered(world: World, api: Api, tmp_path: Path) -> None:
    elsewhere = trained(world, *range(100, 600, 100))
    assert "it has those at 500, 400, 300." in resubmit(api, elsewhere, resume_from={"step": 7}).json["detail"]
    here = trained(world, *range(100, 600, 100))
    put_files(tmp_path, here, 400)
    put_files(tmp_path, here, 500, size=3)
    for step in (7, 100, 500):
        assert "it has those at 400." in resubmit(api, here, resume_from={"step": step}).json["detail"]
    none = resubmit(api, trained(world), resume_from={"step": 7})
    assert (none.fields, "it has none." in none.json["detail"]) == (["resume_from.step"], True)


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("bogus", "there are name, project, "),
        ("gpu", "did you mean gpus?"),
        ("batchsize", "did you mean batch_size?"),
        ("total_setps", "did you mean total_steps?"),
    ],
)
def test_a_key_is_suggested_only_where_it_is_alike(world: World, api: Api, key: str, said: str) -> None:
    detail = resubmit(api, world.submit(), **{key: 1}).json["detail"]
    assert said in detail
    assert ("did you mean" in detail) == ("did you mean" in said)


def test_a_job_file_names_another_jobs_checkpoint(world: World, api: Api) -> None:
    old = trained(world, 200)
    body = {"command": "x", "project": "vision", "total_steps": 900, "resume_from": {"job": old.number}}
    made = api.post("jobs", body)
    assert (made.status, made.json["step"], made.json["resubmit_of"]) == (201, 200, None)
    assert api.post("jobs", body | {"total_steps": 200}).fields == ["total_steps"]


def test_a_checkpoint_that_is_gone_or_damaged_is_said_at_submission(world: World, api: Api, tmp_path: Path) -> None:
    old = trained(world, 200, 400, 600, 800)
    put_files(tmp_path, old, 200)
    put_files(tmp_path, old, 400)
    put_files(tmp_path, old, 600, size=3)
    assert "no longer kept" in resubmit(api, old, resume_from={"step": 800}).json["detail"]
    assert "3 of 10 bytes" in resubmit(api, old, resume_from={"step": 600}).json["detail"]
    assert resubmit(api, old, resume_from="latest").json["step"] == 400
    (tmp_path / "jobs" / str(old.pk) / "checkpoints" / "step-200" / "manifest.json").write_text("{")
    assert "manifest" in resubmit(api, old, resume_from={"step": 200}).json["detail"]


def test_checkpoints_stay_within_their_project(world: World, api: Api) -> None:
    other = Project.objects.create(key="speech", name="Speech")
    Membership.objects.create(project=other, user=world.user)
    old = trained(world, 200)
    refused = resubmit(api, old, project="speech", resume_from="latest")
    assert refused.fields == ["resume_from.job"]
    assert resubmit(api, old, project="speech").json["project"]["key"] == "speech"
    stranger = User.objects.create_user("eve@example.org", "x")
    Membership.objects.create(project=other, user=stranger)
    body = {"command": "x", "project": "speech", "total_steps": 900}
    answers = [Api(stranger).post("jobs", body | {"resume_from": {"job": n}}).json for n in (old.number, 10**9)]
    assert answers[0] == answers[1]


def test_an_administrators_priority_is_not_inherited(world: World, api: Api) -> None:
    old = world.submit(priority=10)
    assert resubmit(api, old).json["priority"] == 0
    assert resubmit(api, old, priority=10).status == 403


def test_who_may_resubmit(world: World) -> None:
    job = world.submit()
    member, viewer, stranger = (User.objects.create_user(f"{n}@example.org", "x") for n in ("m", "v", "s"))
    Membership.objects.create(project=world.project, user=member)
    Membership.objects.create(project=world.project, user=viewer, role=Membership.Role.VIEWER)
    made = resubmit(Api(member), job)
    assert made.json["owner"]["email"] == "m@example.org"
    assert AuditEntry.objects.get(action="job.resubmit").detail == {"as": made.json["number"]}
    assert resubmit(Api(viewer), job).status == 403
    unknown = Api(stranger).post("jobs/999999/resubmit", {})
    assert (unknown.status, resubmit(Api(stranger), job).json) == (404, unknown.json)
    assert resubmit(Api(), job).status == 401


def test_one_key_resubmits_once(world: World, api: Api) -> None:
    job = world.submit()
    answers = [api.post(f"jobs/{job.number}/resubmit", {}, Idempotency_Key="k") for _ in range(2)]
    assert [answer.status for answer in answers] == [201, 200]
    assert answers[0].json["number"] == answers[1].json["number"]


def test_a_finished_job_goes_on_as_another(world: World, api: Api) -> None:
    old = trained(world, 1000)
    new = Job.objects.get(number=resubmit(api, old, total_steps=1500, resume_from="latest").json["number"])
    world.train(new)
    world.gone(new, "done", step=1500)
    assert world.state(new) is State.FINISHED
