"""Guaranteed GPUs over the API, and taken back in rounds from those who borrowed them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounts.models import AuditEntry, Guarantee, Membership, Project, User
from portal.jobs.models import Accelerator, Job, JobEvent
from portal.snapshot.take import take_snapshot
from scheduling.lifecycle import State
from tests.portal.api_calls import Api
from tests.portal.world import World, check_invariants

pytestmark = pytest.mark.django_db


@pytest.fixture
def world() -> World:
    """Four GPUs; a lab with two projects, and one beside it."""
    made = World(policy="multifactor")
    lab = Project.objects.create(key="lab", name="Lab")
    Project.objects.create(key="speech", name="Speech", parent=lab)
    Project.objects.create(key="audio", name="Audio", parent=lab)
    for key in ("lab", "speech", "audio"):
        Membership.objects.create(project=Project.objects.get(key=key), user=made.user)
    return made


def put(api: Api, project: str, gpus: int, **more: Any) -> Any:
    return api.put(f"projects/{project}/guarantee", {"gpus": gpus, **more})


# Over the API ----------------------------------------------------------------------------------------


def test_what_is_guaranteed_never_adds_up_to_more_than_there_is(root: Api) -> None:
    assert put(root, "lab", 3).status == 201
    assert put(root, "vision", 1).status == 201
    too_many = put(root, "vision", 2)
    assert too_many.status == 400
    assert too_many.json["errors"][0]["field"] == "gpus"
    assert "Lab 3, Vision 2: together 5 GPUs, and the cluster has 4." in too_many.json["detail"]
    assert put(root, "speech", 2).status == 201
    inner = put(root, "audio", 2).json
    assert "Audio 2, Speech 2: together 4 GPUs, and project Lab is guaranteed 3." in inner["detail"]
    less = put(root, "lab", 1).json
    assert "Speech 2: together 2 GPUs, and project Lab is guaranteed 1." in less["detail"]
    assert put(root, "lab", 3, by_type={"k1": 4}).json["errors"][0]["field"] == "by_type"
    unknown = put(root, "lab", 3, by_type={"h100": 1}).json
    assert unknown["errors"][0]["field"] == "by_type.h100"
    assert put(root, "lab", 3, by_type={"k1": 3}, reclaim_within_s=60).status == 200
    assert put(root, "speech", 0).status == 400
    entries = AuditEntry.objects.filter(action="guarantee.set")
    assert entries.count() == 4


@pytest.fixture
def half_left(world: World, root: Api) -> None:
    """All four GPUs are promised, two to the lab, and two have left the cluster since."""
    assert put(root, "lab", 2, by_type={"k1": 2}).status == 201
    assert put(root, "vision", 2, by_type={"k1": 2}).status == 201
    gone = Accelerator.objects.order_by("pk").values("pk")[:2]
    Accelerator.objects.filter(pk__in=gone).update(present=False)


@pytest.mark.usefixtures("half_left")
def test_guarantees_can_be_lowered_though_more_is_promised_than_is_left(root: Api) -> None:
    assert put(root, "lab", 2).status == 200  # of any type now
    assert put(root, "lab", 1).status == 200
    more = put(root, "lab", 2)
    assert more.status == 400
    assert "Lab 2, Vision 2: together 4 GPUs, and the cluster has 2." in more.json["detail"]
    assert put(root, "vision", 1).status == 200
    typed = put(root, "vision", 1, by_type={"k1": 1})
    assert typed.status == 200


@pytest.mark.usefixtures("half_left")
def test_what_is_promised_elsewhere_keeps_no_manager_from_dividing(root: Api) -> None:
    boss = User.objects.create_user("boss@example.org", "x")
    Membership.objects.create(project=Project.objects.get(key="lab"), user=boss, role="manager")
    assert put(Api(boss), "speech", 2).status == 201
    beyond = put(Api(boss), "audio", 1)
    assert beyond.status == 400
    assert "Audio 1, Speech 2: together 3 GPUs, and project Lab is guaranteed 2." in beyond.json["detail"]


def test_a_refused_move_names_no_project_that_the_person_may_not_see(root: Api) -> None:
    for project, gpus in (("lab", 2), ("speech", 2), ("vision", 1)):
        assert put(root, project, gpus).status == 201
    boss = User.objects.create_user("boss@example.org", "x")
    for key in ("audio", "vision"):
        Membership.objects.create(project=Project.objects.get(key=key), user=boss, role="manager")
    answer = Api(boss).patch("projects/vision", {"parent": "audio"})
    assert answer.status == 409
    assert "Vision 1 and 1 more: together 3 GPUs, and a project above is guaranteed 2." in answer.json["detail"]


def test_a_project_is_not_moved_to_where_its_guarantee_does_not_fit(root: Api) -> None:
    for project, gpus in (("lab", 2), ("speech", 2), ("vision", 1)):
        assert put(root, project, gpus).status == 201
    answer = root.patch("projects/vision", {"parent": "lab"})
    assert answer.status == 409
    assert "Guaranteed GPUs would not add up." in answer.json["detail"]
    assert Project.objects.get(key="vision").parent is None


def test_managers_divide_what_theirs_is_guaranteed(world: World, root: Api) -> None:
    boss = User.objects.create_user("boss@example.org", "x")
    Membership.objects.create(project=Project.objects.get(key="lab"), user=boss, role="manager")
    api = Api(boss)
    assert put(api, "speech", 1).status == 403  # the lab has nothing to divide
    put(root, "lab", 2)
    assert put(api, "speech", 1).status == 201
    assert put(api, "lab", 1).status == 403
    assert put(api, "vision", 1).status == 404
    assert put(Api(world.user), "speech", 1).status == 403
    assert api.delete("projects/speech/guarantee").status == 204
    assert api.get("projects/speech/guarantee").status == 404
    assert api.delete("projects/lab/guarantee").status == 403


def test_members_see_what_is_used_and_borrowed(world: World, root: Api) -> None:
    put(root, "lab", 1, by_type={"k1": 1})
    put(root, "vision", 3)
    job = world.submit(project="speech", gpus={"min": 2, "max": 2})
    world.round()
    mine = Api(world.user).get("projects/lab/guarantee").json
    assert (mine["used"], mine["borrowed"], mine["unused"]) == (2, 1, 0)
    assert mine["by_type"] == [{"type": "k1", "gpus": 1, "used": 2}]
    listed = Api(world.user).get("guarantees").json["results"]
    assert [(row["project"], row["unused"]) for row in listed] == [("vision", 3), ("lab", 0)]
    assert world.gpus(job) == 2


# In rounds -------------------------------------------------------------------------------------------


def leave(world: World, job: Job, step: int) -> None:
    world.checkpoint(job, step, reason="request")
    world.gone(job)


@pytest.mark.parametrize("policy", ["multifactor", "fifo_gang", "f_scheduling"])
def test_an_owner_takes_back_what_was_borrowed_and_the_borrower_returns(world: World, policy: str) -> None:
    world.cluster.policy_name = policy
    world.cluster.save()
    Guarantee.objects.create(project=Project.objects.get(key="speech"), gpus=2)
    borrower = world.submit(gpus={"min": 4, "max": 4})
    world.train(borrower)
    world.round()
    owner = world.submit(project="speech", gpus={"min": 2, "max": 2})
    world.round()
    assert world.state(borrower) is State.CHECKPOINTING
    assert world.state(owner) is State.STANDBY
    said = JobEvent.objects.filter(job=borrower, kind="REALLOCATED").latest("id")
    assert said.detail["project"] == "speech"
    assert "project Speech reclaimed 2 of its 2 guaranteed GPUs" in world.run(borrower).reason_text
    leave(world, borrower, 40)
    world.round()
    assert world.state(owner) is State.LAUNCHING
    assert world.state(borrower) is State.WAITING_FOR_RESOURCE
    world.ready(owner)
    world.unprotect(owner)
    world.round()
    assert world.state(owner) is State.RUNNING  # nobody takes it back from the owner
    world.gone(owner, "finished", step=1000)
    world.round()
    assert world.state(borrower) is State.LAUNCHING
    assert world.run(borrower).checkpoint_step == 40
    check_invariants(world)


def test_a_borrower_under_protection_is_left_alone_until_the_time_is_over(world: World) -> None:
    row = Guarantee.objects.create(project=Project.objects.get(key="speech"), gpus=2, reclaim_within_s=600)
    borrower = world.submit(gpus={"min": 4, "max": 4})
    world.round()
    world.ready(borrower)
    run = world.run(borrower)
    run.protected_until = timezone.now() + timedelta(seconds=3_000)
    run.save(update_fields=["protected_until"])
    owner = world.submit(project="speech", gpus={"min": 2, "max": 2})
    world.round()
    assert world.state(borrower) is State.RUNNING_PROTECTED
    assert world.run(owner).reason_token == "reclaiming"
    row.reclaim_within_s = 20
    row.save()
    world.round()
    assert world.state(borrower) is State.CHECKPOINTING
    check_invariants(world)


def test_rounds_ask_the_database_the_same_however_many_guarantees_there_are(world: World) -> None:
    def count() -> int:
        with CaptureQueriesContext(connection) as queries:
            take_snapshot(world.cluster, timezone.now())
        return len(queries)

    Guarantee.objects.create(project=Project.objects.get(key="speech"), gpus=1)
    world.submit()
    count()  # the first look at usage makes its sums
    few = count()
    Guarantee.objects.create(project=Project.objects.get(key="audio"), gpus=1, by_type={"k1": 1})
    Guarantee.objects.create(project=world.project, gpus=1)
    world.submit(project="audio")
    assert count() == few
