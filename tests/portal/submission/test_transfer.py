"""A job moved between projects: who may, when, and what the ledger says."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from accounts.models import AuditEntry, LedgerEntry, Membership, Project, User
from portal.execution import commands, executors, handover
from portal.jobs.models import Command, Handover, Job, JobEvent
from portal.storage import handovers
from scheduling.errors import ExecutorError
from scheduling.executors.local.executor import LocalExecutor
from scheduling.lifecycle import State
from tests.portal.api_calls import Api
from tests.portal.world import World, check_invariants

pytestmark = pytest.mark.django_db


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


# Its files


class Giver:
    """An executor as far as handing over and launching go; it refuses as often as it is told to."""

    def __init__(self, refusals: int = 0) -> None:
        self.refusals, self.calls = refusals, list[tuple[str, ...]]()

    def hand_over(self, project_key: str, job_id: str) -> None:
        if self.refusals:
            self.refusals -= 1
            raise ExecutorError("the disk is read-only", permanent=False)
        self.calls.append((project_key, job_id))

    def launch(self, request: Any) -> None:
        self.calls.append(("launch", request.job_id))


@pytest.fixture
def giver(monkeypatch: pytest.MonkeyPatch) -> Giver:
    made = Giver()
    monkeypatch.setattr(executors, "executor_for", lambda name: made)
    return made


def ended(world: World) -> Job:
    job = world.submit()
    world.train(job)
    world.checkpoint(job, 120)
    world.gone(job, "done", step=1000)
    return job


def test_the_files_of_an_ended_job_follow_it(world: World, speech: Project, giver: Giver) -> None:
    job = ended(world)
    assert move(world.user, job).status == 200
    handover.hand_over(str(job.pk))
    assert giver.calls == [("speech", str(job.pk))]
    assert not Handover.objects.exists()
    handover.hand_over(str(job.pk))
    assert len(giver.calls) == 1


def test_those_of_a_job_that_never_goes_on_follow_it_too(world: World, speech: Project, giver: Giver) -> None:
    job = world.submit()
    world.train(job)
    Api(world.user).post(f"jobs/{job.number}/hold")
    world.checkpoint(job, 120, "request")
    world.gone(job)
    move(world.user, job)
    Api(world.user).post(f"jobs/{job.number}/cancel")
    handover.hand_over(str(job.pk))
    assert giver.calls == [("speech", str(job.pk))]


def test_what_failed_is_tried_again_and_not_for_ever(world: World, speech: Project, giver: Giver) -> None:
    job = ended(world)
    move(world.user, job)
    giver.refusals = handovers.MAX_ATTEMPTS
    for _ in range(handovers.MAX_ATTEMPTS):
        assert handovers.due_handovers(timezone.now()) == [job.pk]
        handover.hand_over(str(job.pk))
        assert handovers.due_handovers(timezone.now()) == []
        assert handovers.due_handovers(timezone.now() + timedelta(seconds=601)) or giver.refusals == 0
        Handover.objects.update(next_attempt_at=timezone.now())
    assert giver.calls == []
    assert handovers.due_handovers(timezone.now()) == []
    assert Handover.objects.get().error == "the disk is read-only"
    assert "the disk is read-only" in JobEvent.objects.get(kind="notice").text
    move(world.user, job, "vision")
    handover.hand_over(str(job.pk))
    assert giver.calls == [("vision", str(job.pk))]


def test_a_job_that_resumes_from_a_moved_one_has_its_files_first(world: World, speech: Project, giver: Giver) -> None:
    source = ended(world)
    move(world.user, source)
    again = world.submit(project="speech", resume_from={"job": source.number}, steps=2000)
    world.round()
    commands.send_command(Command.objects.get(run=world.run(again), closed_at=None).pk)
    assert giver.calls == [("speech", str(source.pk)), ("launch", str(again.pk))]


@pytest.mark.skipif(os.geteuid() != 0, reason="accounts of their own need root")
def test_the_new_projects_account_owns_them(
    world: World, speech: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = LocalExecutor(tmp_path, "k1:4", "accounts", warm_start=False)
    monkeypatch.setattr(executors, "executor_for", lambda name: executor)
    job = ended(world)
    place = tmp_path / "jobs" / str(job.pk) / "checkpoints" / "step-120"
    place.mkdir(parents=True)
    old, new = (executor._accounts.of_project(key) for key in ("vision", "speech"))
    old.take_over(tmp_path / "jobs" / str(job.pk))
    assert place.stat().st_uid == old.uid
    move(world.user, job)
    handover.hand_over(str(job.pk))
    assert place.stat().st_uid == new.uid
