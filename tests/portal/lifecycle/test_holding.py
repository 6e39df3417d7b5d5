"""Hold and release, and what parks a job: the state machine's side and the API's."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.utils import timezone

from accounts.models import AuditEntry, Membership, Project, User
from portal.jobfile.patch import JobPatch
from portal.jobs.models import Job, JobEvent, Run
from portal.lifecycle import commit_plan, end_run, job_limits
from portal.lifecycle.cancel import JobHasEnded, cancel_job
from portal.lifecycle.locking import JobConflict
from portal.lifecycle.suspend import hold_job, release_job
from portal.reporting import acceptance
from portal.snapshot.take import take_snapshot
from portal.submission.edit import patch_job
from portal.submission.transfer import move_job
from scheduling.engine.rounds import plan_round
from scheduling.executors.base import ExitInfo
from scheduling.lifecycle import State
from scheduling.policies import load_policy
from tests.portal.api_calls import Api
from tests.portal.world import World, check_invariants

pytestmark = pytest.mark.django_db


@pytest.fixture
def root(world: World) -> User:
    return User.objects.create_superuser("root@example.org", "x", first_name="Root")


def test_a_held_job_waits_and_says_who_holds_it(world: World) -> None:
    job = world.submit()
    hold_job(actor=world.user, job=job)
    for _ in range(2):
        world.round()
        run = world.run(job)
        assert State(run.state) is State.WAITING_FOR_INITIAL_RESOURCE
        assert run.reason_token == "HELD"
        assert "ana@example.org" in run.reason_text
    other = world.submit()
    world.round()
    assert world.gpus(other) == 4
    check_invariants(world)


def test_a_released_job_queues_again(world: World) -> None:
    job = world.submit()
    hold_job(actor=world.user, job=job)
    world.round()
    release_job(actor=world.user, job=job)
    assert world.run(job).reason_token == "NEW"
    world.round()
    assert world.state(job) is State.LAUNCHING


def test_a_running_job_is_parked_with_its_checkpoint(world: World) -> None:
    job = world.submit()
    world.train(job)
    hold_job(actor=world.user, job=job)
    assert world.state(job) is State.CHECKPOINTING
    assert ("checkpoint_and_stop", 1) in world.open_commands()
    world.checkpoint(job, 130, "request")
    world.gone(job)
    world.round()
    run = world.run(job)
    assert (State(run.state), run.step, run.reason_token) == (State.WAITING_FOR_RESOURCE, 130, "HELD")
    check_invariants(world)
    release_job(actor=world.user, job=job)
    world.round()
    assert world.state(job) is State.LAUNCHING


def test_a_job_on_its_way_to_other_gpus_is_held_there(world: World) -> None:
    job = world.submit()
    world.train(job)
    world.submit()
    world.round()
    assert world.state(job) is State.CHECKPOINTING
    hold_job(actor=world.user, job=job)
    world.gone(job)
    assert world.state(job) is State.WAITING_FOR_RESOURCE
    assert world.gpus(job) == 0
    check_invariants(world)


def test_a_job_that_waits_for_its_gpus_gives_them_back(world: World) -> None:
    first = world.submit()
    world.train(first)
    second = world.submit()
    world.round()
    assert world.state(second) is State.STANDBY
    hold_job(actor=world.user, job=second)
    assert world.state(second) is State.WAITING_FOR_RESOURCE
    check_invariants(world)


def test_holding_what_cannot_be_saved_is_for_administrators(world: World, root: User) -> None:
    job = world.submit(restartable=False)
    world.train(job)
    with pytest.raises(JobConflict, match="start from the beginning"):
        hold_job(actor=world.user, job=job)
    assert world.state(job) is State.RUNNING_PROTECTED
    hold_job(actor=root, job=job)
    assert world.state(job) is State.CHECKPOINTING


def test_holding_and_releasing_twice_is_once(world: World) -> None:
    job = world.submit()
    for _ in range(2):
        hold_job(actor=world.user, job=job)
    for _ in range(2):
        release_job(actor=world.user, job=job)
    kinds = list(JobEvent.objects.filter(job=job).order_by("pk").values_list("kind", flat=True))
    assert kinds == ["submitted", "held", "released"]


@pytest.mark.parametrize("change", ["hold", "move"])
def test_a_job_changed_since_the_snapshot_is_left_out_of_the_plan(world: World, root: User, change: str) -> None:
    Project.objects.create(key="speech", name="Speech")
    job = world.submit()
    acceptance.accept_waiting(cluster_id=world.cluster.pk, problem_of=lambda run: None, now=timezone.now())
    world.cluster.refresh_from_db()
    view = take_snapshot(world.cluster, timezone.now())
    plan = plan_round(view.snapshot, load_policy("f_scheduling"))
    assert len(plan.moves) == 1
    if change == "hold":
        hold_job(actor=world.user, job=job)
    else:
        move_job(actor=root, job=job, key="speech")
    applied = commit_plan.commit_plan(
        cluster_id=world.cluster.pk, round_epoch=view.cluster.round_epoch, plan=plan, seen=view.seen, now=timezone.now()
    )
    assert applied == []
    assert world.gpus(job) == 0


def test_an_ended_job_is_neither_held_nor_released(world: World) -> None:
    job = world.submit()
    cancel_job(user=world.user, job=job)
    for act in (hold_job, release_job):
        with pytest.raises(JobHasEnded):
            act(actor=world.user, job=job)


def test_a_retry_of_a_held_job_stays_held(world: World) -> None:
    job = world.submit(retry={"backoff_s": 0})
    world.round()
    hold_job(actor=world.user, job=job)
    Run.objects.filter(pk=world.run(job).pk).update(state_since=timezone.now() - timedelta(hours=1))
    run = world.run(job)
    end_run.fail(run, ExitInfo("launch_failed"), timezone.now())
    world.processes_gone(run, None)
    world.round()
    assert world.run(job).attempt == 2
    assert world.run(job).reason_token == "HELD"
    check_invariants(world)


def test_an_administrators_hold_is_released_by_administrators(world: World, root: User) -> None:
    job = world.submit()
    owner, administrator = Api(world.user), Api(root)
    assert owner.post(f"jobs/{job.number}/hold").json["hold"]["kind"] == "user"
    assert administrator.post(f"jobs/{job.number}/hold").json["hold"]["kind"] == "admin"
    refused = owner.post(f"jobs/{job.number}/release")
    assert refused.status == 403
    assert "Root" in refused.json["detail"]
    held = owner.get(f"jobs/{job.number}/explanation").json
    assert "administrator" in held["would_change"]
    assert administrator.post(f"jobs/{job.number}/release").json["hold"] is None
    assert list(AuditEntry.objects.filter(target=f"job {job.number}").values_list("action", flat=True)) == [
        "job.release",
        "job.hold",
    ]


def test_who_may_hold_and_release(world: World) -> None:
    job = world.submit()
    viewer = User.objects.create_user("vic@example.org", "x")
    Membership.objects.create(project=world.project, user=viewer, role=Membership.Role.VIEWER)
    stranger = User.objects.create_user("eve@example.org", "x")
    for act in ("hold", "release"):
        assert Api(viewer).post(f"jobs/{job.number}/{act}").status == 403
        unknown = Api(stranger).post("jobs/999999/" + act)
        assert Api(stranger).post(f"jobs/{job.number}/{act}").json == unknown.json
        assert Api().post(f"jobs/{job.number}/{act}").status == 401
        assert Api(world.user).post(f"jobs/{job.number}/{act}").status == 200


def test_a_held_job_is_out_of_the_queue(world: World) -> None:
    held, waiting = world.submit(), world.submit()
    api = Api(world.user)
    api.post(f"jobs/{held.number}/hold")
    assert api.get(f"jobs/{held.number}").json["queue_position"] is None
    assert api.get(f"jobs/{waiting.number}").json["queue_position"] == 1


def test_a_job_is_parked_when_it_has_cost_what_it_may(world: World) -> None:
    job = world.submit(max_cost="0.01")
    world.train(job)
    job_limits.enforce(cluster_id=world.cluster.pk, now=timezone.now())
    assert world.state(job) is State.RUNNING_PROTECTED
    job_limits.enforce(cluster_id=world.cluster.pk, now=timezone.now() + timedelta(hours=1))
    assert world.state(job) is State.CHECKPOINTING
    assert re.search(r"It has cost \S+ USD and may cost 0.01 USD", world.run(job).reason_text)
    assert ("checkpoint_and_stop", 1) in world.open_commands()
    assert ("kill", 1) not in world.open_commands()
    world.gone(job)
    world.round()
    assert world.state(job) is State.WAITING_FOR_RESOURCE
    check_invariants(world)


def _parked(world: World) -> Job:
    job = world.submit(max_cost="0.000001")
    world.train(job)
    job_limits.enforce(cluster_id=world.cluster.pk, now=timezone.now())
    world.gone(job)
    job.refresh_from_db()
    assert job.hold_kind == "cost"
    return job


def test_a_larger_max_cost_releases_a_parked_job(world: World) -> None:
    job = _parked(world)
    with pytest.raises(JobConflict, match="Raise max_cost"):
        release_job(actor=world.user, job=job)
    patch_job(actor=world.user, job=job, patch=JobPatch(max_cost="0.000002"))
    job.refresh_from_db()
    assert job.hold_kind == "cost"
    patch_job(actor=world.user, job=job, patch=JobPatch(max_cost="50"))
    job.refresh_from_db()
    assert job.hold_kind == ""
    world.round()
    assert world.state(job) is State.LAUNCHING


def test_a_parked_job_may_cost_anything_once_its_bound_is_removed(world: World) -> None:
    job = _parked(world)
    patch_job(actor=world.user, job=job, patch=JobPatch(max_cost=None))
    job.refresh_from_db()
    assert job.hold_kind == ""
