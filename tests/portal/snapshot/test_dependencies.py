"""Jobs that wait for the ends of others."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from accounts.models import Membership, Project, User
from portal.core.problems import Problems
from portal.jobs.models import Job, Run
from portal.lifecycle.cancel import cancel_job, cancel_unsatisfiable
from portal.snapshot.dependencies import waits_of
from portal.snapshot.take import take_snapshot
from tests.portal.api_calls import Api
from tests.portal.world import World

pytestmark = pytest.mark.django_db
ONCE: dict[str, Any] = {"retry": {"limit": 0}}


def after(kind: str, *jobs: Job) -> dict[str, Any]:
    return {"dependencies": [{"type": kind, "job": job.number} for job in jobs] or [{"type": kind}]}


def end(world: World, job: Job, how: str) -> None:
    if how == "cancelled":
        cancel_job(user=world.user, job=job)
    else:
        world.gone(job, "done" if how == "succeeded" else "user_error", step=1000)


def step(world: World) -> None:
    """What a round does of it."""
    cancel_unsatisfiable(cluster_id=world.cluster.pk)
    world.round()


@pytest.mark.parametrize(
    ("kind", "how", "starts"),
    [
        ("afterok", "succeeded", True),
        ("afterok", "failed", False),
        ("afterok", "cancelled", False),
        ("afternotok", "succeeded", False),
        ("afternotok", "failed", True),
        ("afternotok", "cancelled", True),
        ("afterany", "succeeded", True),
        ("afterany", "failed", True),
        ("afterany", "cancelled", True),
    ],
)
def test_a_job_starts_after_the_end_that_it_waits_for(world: World, kind: str, how: str, starts: bool) -> None:
    first = world.submit(gpus={"min": 1, "max": 1}, **ONCE)
    second = world.submit(gpus={"min": 1, "max": 1}, **after(kind, first))
    world.train(first)
    step(world)
    assert (world.run(second).reason_token, world.run(second).first_started_at) == ("dependency", None)
    assert f"#{first.number}" in world.run(second).reason_text
    end(world, first, how)
    step(world)
    if starts:
        assert world.run(second).reason_token == "started"
    else:
        assert world.run(second).state == "CANCELLED"
        assert f"({kind})" in world.run(second).reason_text


def test_all_of_several_have_to_be_met(world: World) -> None:
    jobs = [world.submit(gpus={"min": 1, "max": 1}) for _ in range(2)]
    last = world.submit(gpus={"min": 1, "max": 1}, **after("afterok", *jobs))
    for job in jobs:
        world.train(job)
    end(world, jobs[1], "succeeded")
    step(world)
    assert world.run(last).reason_token == "dependency"
    end(world, jobs[0], "succeeded")
    step(world)
    assert world.run(last).reason_token == "started"


def test_a_chain_falls_link_by_link(world: World) -> None:
    first = world.submit(**ONCE)
    second = world.submit(**after("afterok", first))
    third = world.submit(**after("afterok", second))
    fourth = world.submit(**after("afternotok", third))
    cancel_job(user=world.user, job=first)
    for _ in range(3):
        step(world)
    assert [world.run(job).state for job in (second, third)] == ["CANCELLED", "CANCELLED"]
    assert world.run(fourth).reason_token == "started"


def test_a_job_that_is_tried_again_has_not_ended(world: World) -> None:
    first = world.submit(gpus={"min": 1, "max": 1}, retry={"limit": 1, "backoff_s": 0, "on": ["user_error"]})
    second = world.submit(gpus={"min": 1, "max": 1}, **after("afternotok", first))
    world.train(first)
    world.gone(first, "user_error", exit_code=1)
    step(world)
    assert world.run(second).reason_token == "dependency"


def test_a_singleton_runs_alone_among_its_name_and_owner(world: World) -> None:
    one = {"gpus": {"min": 1, "max": 1}, **after("singleton")}
    first, second = (world.submit(name="nightly", **one) for _ in range(2))
    other_name = world.submit(name="weekly", **one)
    bo = User.objects.create_user("bo@example.org", "x")
    Membership.objects.create(project=world.project, user=bo)
    other_owner = world.submit(name="nightly", user=bo, **one)
    step(world)
    tokens = {job: world.run(job).reason_token for job in (first, second, other_name, other_owner)}
    assert tokens == {first: "started", second: "dependency", other_name: "started", other_owner: "started"}
    world.train(first)
    end(world, first, "succeeded")
    step(world)
    assert world.run(second).reason_token == "started"


def test_waiting_counts_from_the_end_of_the_last_dependency(world: World) -> None:
    first = world.submit(gpus={"min": 1, "max": 1})
    second = world.submit(gpus={"min": 4, "max": 4}, **after("afterany", first))
    world.train(first)
    end(world, first, "succeeded")
    Job.objects.update(submitted_at=timezone.now() - timedelta(days=2))
    ended = timezone.now() - timedelta(hours=1)
    Run.objects.filter(job=first).update(ended_at=ended)
    view = take_snapshot(world.cluster, timezone.now()).snapshot
    seen = next(job for job in view.jobs if job.number == second.number)
    assert seen.eligible_at == pytest.approx(ended.timestamp())


def test_what_one_may_not_see_cannot_be_named(world: World) -> None:
    eve = User.objects.create_user("eve@example.org", "x")
    Membership.objects.create(project=Project.objects.create(key="speech", name="Speech"), user=eve)
    mine = world.submit()
    for job in (mine.number, 999_999, str(mine.pk)):
        with pytest.raises(Problems) as refused:
            world.submit(user=eve, project="speech", dependencies=[{"type": "afterok", "job": job}])
        assert [problem.field for problem in refused.value.problems] == ["dependencies.0.job"]


@pytest.mark.parametrize("wrong", [{"type": "afterok"}, {"type": "singleton", "job": 1}, {"type": "after", "job": 1}])
def test_wrong_ones_are_refused_by_name(world: World, wrong: dict[str, Any]) -> None:
    body = {"project": "vision", "command": "x", "total_steps": 5, "dependencies": [wrong]}
    answer = Api(world.user).post("jobs", body)
    assert answer.status == 400
    assert answer.fields[0].startswith("dependencies.0")


def test_the_explanation_and_the_place_in_the_queue(world: World) -> None:
    first = world.submit(gpus={"min": 1, "max": 1})
    second = world.submit(**after("afterok", first))
    world.train(first)
    step(world)
    api = Api(world.user)
    why = api.get(f"jobs/{second.number}/explanation").json
    assert (why["code"], why["slurm"]) == ("dependency", "Dependency")
    assert why["would_change"]
    assert api.get(f"jobs/{second.number}/priority").json["rank"] is None
    assert api.get(f"jobs/{second.number}").json["spec"]["dependencies"] == [{"type": "afterok", "job": first.number}]


def test_jobs_without_them_cost_nothing_more(world: World, django_assert_max_num_queries: Any) -> None:
    for _ in range(3):
        world.submit()
    with django_assert_max_num_queries(1):
        assert waits_of(world.cluster.pk).text == {}
