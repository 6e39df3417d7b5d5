"""Patching jobs, deadlines, and which failures are tried again."""

from __future__ import annotations

from datetime import datetime, timedelta
from datetime import timezone as zone
from typing import Any

import pytest
from django.utils import timezone

from accounts.models import AuditEntry, Membership, User
from portal.jobfile.parsing import load_yaml, parse_job_file
from portal.jobs.models import Job, JobEvent, Run
from portal.lifecycle import job_limits
from portal.lifecycle.job_limits import time_left_s
from portal.lifecycle.retries import INFRASTRUCTURE_LIMIT
from scheduling.lifecycle import State
from tests.portal.api_calls import Api
from tests.portal.world import World, check_invariants

pytestmark = pytest.mark.django_db


def patch(api: Api, job: Job, **changes: Any) -> Any:
    return api.request("PATCH", f"jobs/{job.number}", changes)


def test_what_is_patched_is_seen_at_once_and_told_once(world: World, api: Api) -> None:
    job = world.submit(labels={"a": "1", "b": "2"}, deadline="2030-01-01T00:00:00Z")
    answer = patch(api, job, name="new", nice=5, labels={"a": None, "c": "3"}, total_steps=2000, deadline=None)
    assert answer.status == 200
    shown = api.get(f"jobs/{job.number}").json
    assert (shown["name"], shown["nice"], shown["priority"], shown["total_steps"]) == ("new", 5, -5, 2000)
    assert (shown["labels"], shown["deadline_at"]) == ({"b": "2", "c": "3"}, None)
    assert shown["spec"]["labels"] == {"b": "2", "c": "3"}
    event = JobEvent.objects.get(kind="changed")
    assert set(event.detail) == {"name", "nice", "labels", "total_steps", "deadline"}
    assert event.detail["total_steps"] == {"before": 1000, "after": 2000}
    assert not AuditEntry.objects.filter(action="job.patch").exists()
    assert patch(api, job, name="new").status == 200
    assert JobEvent.objects.filter(kind="changed").count() == 1


@pytest.mark.parametrize(
    ("changes", "status", "field"),
    [
        ({"total_steps": 999}, 400, "total_steps"),
        ({"nice": 4}, 403, "nice"),
        ({"priority": 1}, 403, "priority"),
        ({"max_cost": "-1"}, 400, "max_cost"),
        ({"max_duration": "soon"}, 400, "max_duration"),
        ({"labels": {"spa ce": "x"}}, 400, "labels"),
        ({"name": ""}, 400, "name"),
        ({"name": None}, 400, "name"),
        ({"command": "other"}, 400, "command"),
        ({"gpus": {"max": 8}}, 400, "gpus"),
    ],
)
def test_what_may_not_be_changed_is_named(
    world: World, api: Api, changes: dict[str, Any], status: int, field: str
) -> None:
    job = world.submit(nice=5)
    answer = api.request("PATCH", f"jobs/{job.number}", changes | ({} if "name" in changes else {"name": "other"}))
    assert (answer.status, answer.fields[0]) == (status, field)
    assert api.get(f"jobs/{job.number}").json["name"] == "command"


def test_a_deadline_in_the_past_is_refused_wherever_it_is_given(world: World, api: Api) -> None:
    past, later = "2026-01-01T00:00:00Z", "2100-01-01T00:00:00Z"
    body = {"command": "train", "project": "vision", "total_steps": 9}
    for refused in (
        api.post("jobs", body | {"deadline": past}),
        api.post("jobs", body | {"deadline": past, "array": {"indices": "0-3"}}),
        patch(api, world.submit(), deadline=past, name="other"),
    ):
        assert (refused.status, refused.fields) == (400, ["deadline"])
        assert "2026-01-01 00:00:00 UTC has passed" in refused.text
        assert "still to come" in refused.text
    assert list(Job.objects.values_list("name", flat=True)) == ["command"]
    assert api.post("jobs", body | {"deadline": later}).status == 201


def test_the_rest_of_a_job_is_changed_after_its_deadline(world: World, api: Api) -> None:
    job = overdue(world)
    assert patch(api, job, nice=3, deadline=job.spec["deadline"]).status == 200
    elsewhere = datetime.fromisoformat(job.spec["deadline"]).astimezone(zone(timedelta(hours=1)))
    assert patch(api, job, nice=4, deadline=elsewhere.isoformat()).status == 200
    assert patch(api, job, deadline=None).json["deadline_at"] is None


def test_resubmitting_after_the_deadline_says_how_to_set_another(world: World, api: Api) -> None:
    old = overdue(world)
    refused = api.post(f"jobs/{old.number}/resubmit", {})
    assert (refused.status, refused.fields) == (400, ["deadline"])
    assert "--set deadline=" in refused.text
    bulk = api.post("jobs/bulk", {"action": "resubmit", "ids": [old.number]}).json["results"][0]
    assert (bulk["status"], before_now(bulk["detail"])) == (400, before_now(refused.json["detail"]))
    for deadline in ("2100-01-01T00:00:00Z", None):
        assert api.post(f"jobs/{old.number}/resubmit", {"deadline": deadline}).json["deadline_at"] == deadline


def before_now(detail: str) -> str:
    """What a refusal says before the time of day, which two of them need not share."""
    before, found, _ = detail.partition(": it is ")
    assert found
    return before


def overdue(world: World) -> Job:
    """A job whose deadline came after its submission and has passed."""
    job = world.submit()
    job.spec["deadline"] = "2026-01-01T00:00:00Z"
    job.save(update_fields=["spec"])
    return job


def test_administrators_change_the_priority_and_leave_an_entry(world: World) -> None:
    job = world.submit(nice=5)
    root = Api(User.objects.create_superuser("root@example.org", "x"))
    assert patch(root, job, priority=10, nice=0).json["priority"] == 10
    entry = AuditEntry.objects.get(action="job.patch")
    assert entry.target == f"job {job.number}"
    assert entry.detail["priority"] == {"before": 0, "after": 10}


def test_an_ended_job_keeps_what_it_was_asked_to_do(world: World, api: Api) -> None:
    job = world.submit()
    world.train(job)
    world.checkpoint(job, 500)
    world.gone(job, "done", step=1000)
    assert patch(api, job, labels={"good": "yes"}).status == 200
    refused = patch(api, job, total_steps=2000)
    assert (refused.status, refused.fields) == (409, ["total_steps"])
    assert "resume_from" in refused.json["detail"]


def test_who_may_patch(world: World) -> None:
    job = world.submit()
    viewer = User.objects.create_user("vic@example.org", "x")
    Membership.objects.create(project=world.project, user=viewer, role=Membership.Role.VIEWER)
    assert patch(Api(viewer), job, name="x").status == 403
    stranger = Api(User.objects.create_user("eve@example.org", "x"))
    unknown = stranger.request("PATCH", "jobs/999999", {"name": "x"})
    assert (patch(stranger, job, name="x").json, unknown.status) == (unknown.json, 404)
    assert patch(Api(), job, name="x").status == 401


# More steps while it trains


def test_a_run_that_ends_at_the_old_total_goes_on(world: World, api: Api) -> None:
    job = world.submit()
    world.train(job)
    patch(api, job, total_steps=1500)
    world.checkpoint(job, 1000)
    world.gone(job, "done", step=1000)
    assert world.state(job) is State.WAITING_FOR_RESOURCE
    world.round()
    world.ready(job)
    assert world.run(job).step == 1000
    world.gone(job, "done", step=1500)
    assert world.state(job) is State.FINISHED
    check_invariants(world)


def test_a_run_that_stops_early_by_itself_is_done_even_if_the_job_has_grown(world: World, api: Api) -> None:
    job = world.submit()
    world.train(job)
    patch(api, job, total_steps=1500)
    world.gone(job, "done", step=700)
    assert world.state(job) is State.FINISHED


def test_the_runner_is_told_of_new_limits(world: World, api: Api) -> None:
    job = world.submit(max_duration=3600)
    world.train(job)
    patch(api, job, max_duration="2h")
    run = Run.objects.select_related("job").get(pk=world.run(job).pk)
    assert time_left_s(run) == 7200
    Run.objects.filter(pk=run.pk).update(running_s=3000, state=State.RUNNING, ready_at=run.state_since)
    run = Run.objects.select_related("job").get(pk=run.pk)
    assert time_left_s(run) == 4200


# Deadlines


def told(job: Job) -> list[str]:
    kinds = JobEvent.objects.filter(job=job, kind__startswith="deadline").order_by("pk")
    return list(kinds.values_list("kind", flat=True))


def test_a_deadline_that_will_be_missed_is_told_once_and_again_when_it_passed(world: World, api: Api) -> None:
    now = timezone.now()
    job = world.submit("slow", steps=100_000, deadline=(now + timedelta(hours=1)).isoformat())
    calm = world.submit("fast", steps=10, deadline=(now + timedelta(days=300)).isoformat(), gpus={"max": 1})
    world.train(job)
    for _ in range(2):
        job_limits.enforce(cluster_id=world.cluster.pk, now=now)
    assert told(job) == ["deadline_late"]
    assert "after its deadline" in api.get(f"jobs/{job.number}/explanation").json["deadline"]
    for _ in range(2):
        job_limits.enforce(cluster_id=world.cluster.pk, now=now + timedelta(hours=2))
    assert told(job) == ["deadline_late", "deadline_passed"]
    assert told(calm) == []
    assert api.get(f"jobs/{calm.number}/explanation").json["deadline"] is None


def test_a_new_deadline_is_told_of_anew(world: World, api: Api) -> None:
    now = timezone.now()
    job = world.submit(deadline=(now + timedelta(minutes=1)).isoformat())
    job_limits.enforce(cluster_id=world.cluster.pk, now=now + timedelta(minutes=2))
    patch(api, job, deadline=(now + timedelta(minutes=3)).isoformat())
    job_limits.enforce(cluster_id=world.cluster.pk, now=now + timedelta(minutes=4))
    assert told(job) == ["deadline_passed"] * 2


# Retries


def failing(world: World, job: Job, reason: str) -> State:
    world.round()
    world.ready(job)
    world.gone(job, reason)
    return world.state(job)


def test_lost_nodes_do_not_use_up_the_limit(world: World) -> None:
    job = world.submit(retry={"limit": 1, "backoff_s": 0, "on": ["user_error", "node_failure"]})
    for _ in range(3):
        assert failing(world, job, "runner_lost") is not State.FAILED
    assert failing(world, job, "user_error") is not State.FAILED
    assert failing(world, job, "user_error") is State.FAILED
    assert "tried again once" in world.run(job).reason_text


def test_lost_nodes_are_not_survived_for_ever(world: World) -> None:
    job = world.submit(retry={"limit": 0, "backoff_s": 0})
    for _ in range(INFRASTRUCTURE_LIMIT):
        assert failing(world, job, "runner_lost") is not State.FAILED
    assert failing(world, job, "runner_lost") is State.FAILED


def test_only_the_endings_that_are_named_are_tried_again(world: World) -> None:
    job = world.submit(retry={"limit": 5, "backoff_s": 0, "on": ["out_of_memory"]})
    assert failing(world, job, "out_of_memory") is not State.FAILED
    assert failing(world, job, "user_error") is State.FAILED
    assert "user_error" in world.run(job).reason_text


def test_the_wait_doubles(world: World) -> None:
    job = world.submit(retry={"limit": 5, "backoff_s": 10, "on": ["user_error"]})
    waits = []
    for _ in range(3):
        Run.objects.filter(pk=world.run(job).pk).update(not_before=None)
        failing(world, job, "user_error")
        run = world.run(job)
        assert run.not_before is not None
        waits.append((run.not_before - run.created_at).total_seconds())
    assert waits == [10, 20, 40]


def test_on_is_a_key_in_yaml_too() -> None:
    text = "command: x\ntotal_steps: 1\nrestartable: no\nretry:\n  on: [user_error]\n"
    job_file = parse_job_file(load_yaml(text))
    assert job_file.retry.on == ["user_error"]
    assert job_file.restartable is False
