"""A job moved between projects: who may, when, and what the ledger says."""

from __future__ import annotations

from typing import Any

import pytest

from accounts.models import AuditEntry, LedgerEntry, Membership, Project, User
from portal.jobs.models import Job, JobEvent
from scheduling.lifecycle import State
from tests.portal.api import Api
from tests.portal.world import World, check_invariants

pytestmark = pytest.mark.django_db


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def speech(world: World) -> Project:
    project = Project.objects.create(key="speech", name="Speech")
    Membership.objects.create(project=project, user=world.user)
    return project


def move(user: User, job: Job, key: str = "speech") -> Any:
    return Api(user).post(f"jobs/{job.number}/move", {"project": key})


def test_what_was_spent_stays_and_what_comes_goes_to_the_new_project(world: World, speech: Project) -> None:
    job = world.submit()
    world.train(job)
    refused = move(world.user, job)
    assert (refused.status, refused.json["errors"][0]["code"]) == (409, "holds_gpus")
    Api(world.user).post(f"jobs/{job.number}/hold")
    world.checkpoint(job, 120, "request")
    world.gone(job)
    assert move(world.user, job).json["project"]["key"] == "speech"
    spent = LedgerEntry.objects.filter(project=world.project).count()
    assert spent == 4
    Api(world.user).post(f"jobs/{job.number}/release")
    world.train(job)
    world.gone(job, "done", step=1000)
    assert world.state(job) is State.FINISHED
    assert LedgerEntry.objects.filter(project=world.project).count() == spent
    assert LedgerEntry.objects.filter(project=speech).count() == 4
    check_invariants(world)


def test_both_projects_are_told_and_there_is_an_entry(world: World, speech: Project) -> None:
    job = world.submit()
    move(world.user, job)
    assert JobEvent.objects.get(kind="moved").project == speech
    assert JobEvent.objects.get(kind="moved_away").project == world.project
    assert AuditEntry.objects.get(action="job.move").detail == {"from": "vision", "to": "speech"}
    assert move(world.user, job).status == 200
    assert JobEvent.objects.filter(kind="moved").count() == 1


def test_the_whole_history_goes_along(world: World, speech: Project) -> None:
    job = world.submit()
    move(world.user, job)
    hearer = User.objects.create_user("h@example.org", "x")
    Membership.objects.create(project=speech, user=hearer, role=Membership.Role.VIEWER)
    kinds = [event["kind"] for event in Api(hearer).get(f"jobs/{job.number}/events").json["results"]]
    assert kinds == ["moved", "submitted"]


def test_who_may_move(world: World, speech: Project) -> None:
    job = world.submit()
    people = {name: User.objects.create_user(f"{name}@example.org", "x") for name in ("member", "viewer", "manager")}
    for name, user in people.items():
        Membership.objects.create(project=world.project, user=user, role=name)
    assert move(people["manager"], job).fields == ["project"]
    for user in people.values():
        Membership.objects.create(project=speech, user=user)
    assert move(people["viewer"], job).status == 403
    assert move(people["member"], job).status == 403
    assert move(people["manager"], job).status == 200
    stranger = User.objects.create_user("eve@example.org", "x")
    unknown = Api(stranger).post("jobs/999999/move", {"project": "speech"})
    assert (unknown.status, move(stranger, job).json) == (404, unknown.json)


def test_other_projects_are_as_unknown_as_none(world: World) -> None:
    job = world.submit()
    Project.objects.create(key="secret", name="Secret")
    there, nowhere = move(world.user, job, "secret"), move(world.user, job, "nothing")
    assert (there.status, there.json) == (400, nowhere.json)


def test_a_job_that_waits_for_its_gpus_is_not_moved(world: World, speech: Project) -> None:
    first = world.submit()
    world.train(first)
    second = world.submit()
    world.round()
    assert world.state(second) is State.STANDBY
    assert move(world.user, second).status == 409


def test_a_job_with_material_of_its_project_is_not_moved(world: World, speech: Project) -> None:
    job = world.submit(code={"git": "https://example.org/code.git", "ref": "main"})
    answer = Api(world.user).post(f"jobs/{job.number}/move", {"project": "speech"})
    assert answer.status == 409
    assert "its code is the project's" in answer.json["detail"]
