"""Metrics, timelines, cost, history and explanation."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.utils import timezone

from accounts.models import Membership, Project, User
from portal.dashboard.metrics import thin
from portal.jobs.models import ClusterSample, Hold, Job, JobEvent, MetricPoint, Run
from portal.lifecycle.suspend import hold_job
from tests.portal.api_calls import Api
from tests.portal.world import World

pytestmark = pytest.mark.django_db


@pytest.fixture
def stranger(world: World) -> Api:
    """Somebody of another project, which the same cluster serves."""
    project = Project.objects.create(key="speech", name="Speech")
    user = User.objects.create_user("eve@example.org", "x")
    Membership.objects.create(project=project, user=user)
    return Api(user)


def rescaled(world: World) -> tuple[Job, Job]:
    """Two jobs of which the first gave GPUs up for the second."""
    first = world.submit()
    world.train(first)
    second = world.submit()
    world.round()
    world.checkpoint(first, 100, "request")
    world.gone(first)
    world.round()
    world.ready(first)
    return first, second


def test_metrics_come_thinned_with_their_extremes(world: World, api: Api) -> None:
    world.train(job := world.submit())
    run, start = world.run(job), timezone.now() - timedelta(hours=1)
    MetricPoint.objects.bulk_create(
        MetricPoint(
            run=run,
            epoch=1,
            step=n,
            at=start + timedelta(seconds=n),
            values={"loss": 99.0 if n == 517 else 1.0, "x": n},
        )
        for n in range(1000)
    )
    answer = api.get(f"jobs/{job.number}/metrics?points=50&names=loss").json
    assert list(answer["series"]) == ["loss"]
    assert answer["names"] == ["loss", "x"]
    points = answer["series"]["loss"]
    assert len(points) <= 50
    assert (points[0][1], points[-1][1]) == (0, 999)
    assert 99.0 in [value for _, _, value in points]
    assert points == sorted(points)
    assert answer["predicted_steps_per_s"][0][1] == 28.0


@pytest.mark.parametrize("limit", [2, 3, 10, 999])
def test_thinning_keeps_ends_order_and_limit(limit: int) -> None:
    points = [(float(n), n, float((n * 37) % 101)) for n in range(1000)]
    kept = thin(points, limit)
    assert len(kept) <= limit
    assert (kept[0], kept[-1]) == (points[0], points[-1])
    assert kept == sorted(kept)


def test_a_job_timeline_follows_its_states(world: World, api: Api) -> None:
    first, _ = rescaled(world)
    answer = api.get(f"jobs/{first.number}/timeline").json
    states = [span["state"] for span in answer["states"]]
    assert states[:4] == ["WAITING_FOR_INITIAL_CONTACT", "WAITING_FOR_INITIAL_RESOURCE", "STANDBY", "LAUNCHING"]
    assert states[-3:] == ["STANDBY", "LAUNCHING", "RUNNING_PROTECTED"]
    assert [span["coarse"] for span in answer["states"]][-2:] == ["rescaling", "running"]
    for span, following in zip(answer["states"], answer["states"][1:], strict=False):
        assert span["to_at"] == following["from_at"]
    assert answer["states"][-1]["to_at"] is None
    (rescale,) = answer["resizes"]
    assert rescale["before"] == 4
    assert rescale["after"] == answer["allocations"][-1]["count"] < 4
    assert [a["epoch"] for a in answer["allocations"]] == [1, 2]
    assert answer["allocations"][0]["to_at"] is not None


def test_a_parked_job_leaves_the_gpus_that_it_had(world: World, api: Api) -> None:
    world.train(job := world.submit())
    hold_job(actor=world.user, job=job)
    (rescale,) = api.get(f"jobs/{job.number}/timeline").json["resizes"]
    assert (rescale["before"], rescale["after"]) == (4, 0)


def test_a_retry_goes_on_in_the_same_timeline(world: World, api: Api) -> None:
    world.train(job := world.submit(retry={"on": ["user_error"]}))
    world.gone(job, "user_error", exit_code=1)
    spans = api.get(f"jobs/{job.number}/timeline").json["states"]
    assert [span["state"] for span in spans].count("WAITING_FOR_INITIAL_CONTACT") == 2
    assert [span["to_at"] for span in spans].count(None) == 1


def test_the_cluster_timeline_hides_names_of_others(world: World, api: Api, stranger: Api) -> None:
    first, _ = rescaled(world)
    mine, theirs = api.get("timeline").json, stranger.get("timeline").json
    assert {hold["job"]["name"] for hold in mine["holds"]} == {first.name}
    assert {hold["job"]["name"] for hold in theirs["holds"]} == {None}
    assert {hold["job"]["project"] for hold in theirs["holds"]} == {"Vision"}
    assert first.name not in str(theirs)
    assert {hold["kind"] for hold in mine["holds"]} >= {"launching", "protected", "moving"}
    assert [rescale["number"] for rescale in mine["resizes"]] == [first.number]
    for gpu in range(4):
        ends = [(h["from_at"], h["to_at"]) for h in mine["holds"] if h["index"] == gpu]
        for (_, end), (start, _) in zip(sorted(ends), sorted(ends)[1:], strict=False):
            assert end is not None
            assert end <= start


def test_the_cluster_timeline_is_bounded(api: Api) -> None:
    now = datetime(2026, 5, 5, tzinfo=UTC)
    for start, end in ((now, now), (now, now - timedelta(hours=1)), (now - timedelta(hours=25), now)):
        query = f"from_at={start:%FT%TZ}&to_at={end:%FT%TZ}"
        assert api.get(f"timeline?{query}").fields == ["from_at"]
    for wrong in ("yesterday", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "2026-05-05T00:00:00", "%00"):
        assert api.get(f"timeline?from_at={wrong}").fields == ["from_at"]
    assert api.get(f"timeline?from_at={now - timedelta(hours=24):%FT%TZ}&to_at={now:%FT%TZ}").json["holds"] == []


def test_timelines_cost_the_same_for_few_and_many(world: World, api: Api, django_assert_max_num_queries: Any) -> None:
    world.train(world.submit())
    api.get("timeline")
    with django_assert_max_num_queries(15) as few:
        api.get("timeline")
    for _ in range(5):
        world.submit()
        world.round()
    with django_assert_max_num_queries(15) as many:
        api.get("timeline")
    assert len(few) == len(many)


def test_cost_is_what_was_held_and_what_is_left(world: World, api: Api) -> None:
    world.train(job := world.submit(steps=28_000))
    Hold.objects.filter(run=world.run(job)).update(during=(timezone.now() - timedelta(hours=1), None))
    cost = api.get(f"jobs/{job.number}/cost").json
    assert float(cost["so_far"]) == pytest.approx(4 * 1.234567, rel=0.01)
    assert cost["gpu_hours"] == pytest.approx(4, rel=0.01)
    assert cost["price_per_gpu_hour"] == "1.234567"
    assert Decimal(cost["price_per_hour"]) == 4 * Decimal("1.234567")
    assert Decimal(cost["so_far"]) < Decimal(cost["estimated_low"]) < Decimal(cost["estimated"])
    assert Decimal(cost["estimated"]) < Decimal(cost["estimated_high"])
    assert "28 steps/s" in cost["basis"]
    assert cost["by_type"][0]["type"] == "k1"


def test_restarts_have_a_price(world: World, api: Api) -> None:
    first, _ = rescaled(world)
    assert Decimal(api.get(f"jobs/{first.number}/cost").json["lost_to_restarts"]) > 0
    world.train(plain := world.submit())
    assert api.get(f"jobs/{plain.number}/cost").status == 200


def test_the_cost_of_an_ended_job_is_its_ledger(world: World, api: Api) -> None:
    world.train(job := world.submit())
    world.gone(job, "done", step=1000)
    cost = api.get(f"jobs/{job.number}/cost").json
    assert cost["so_far"] == cost["estimated"] == cost["by_type"][0]["amount"]
    assert cost["price_per_hour"] is None


def test_history_is_thinned(world: World, api: Api) -> None:
    now = timezone.now()
    ClusterSample.objects.bulk_create(
        ClusterSample(cluster=world.cluster, at=now - timedelta(seconds=5 * n), gpus_total=4, gpus_held=2, queued=n)
        for n in range(1200)
    )
    points = api.get("history?minutes=60").json["points"]
    assert 200 < len(points) <= 500
    assert points == sorted(points, key=lambda point: point["at"])
    assert points[-1]["queued"] == 0
    assert points[0]["utilisation"] == 0.5
    assert api.get("history?minutes=0").fields == ["minutes"]


def test_an_explanation_names_who_is_ahead(world: World, api: Api, stranger: Api) -> None:
    world.train(world.submit())
    ahead = world.submit(gpus={"min": 4}, name="first in line")
    world.round()
    waiting = world.submit(gpus={"min": 4})
    world.round()
    answer = api.get(f"jobs/{waiting.number}/explanation").json
    assert [entry["number"] for entry in answer["ahead"]] == [ahead.number]
    assert answer["ahead"][0]["name"] == "first in line"
    assert answer["code"] == world.run(waiting).reason_token
    assert answer["would_change"]
    assert answer["slurm"] == "Resources"
    assert stranger.get(f"jobs/{waiting.number}/explanation").status == 404


def test_a_part_of_a_gpu_that_is_ahead_is_said_as_one(world: World, api: Api) -> None:
    world.train(world.submit(gpus={"min": 4}))
    world.submit(gpus=0.5)
    world.submit(gpus={"min": 2})
    waiting = world.submit(gpus={"min": 4})
    world.round()
    ahead = api.get(f"jobs/{waiting.number}/explanation").json["ahead"]
    assert [(entry["gpus"], entry["share_percent"]) for entry in ahead] == [(1, 50), (2, 100)]


def test_others_ahead_have_no_names(world: World, stranger: Api) -> None:
    world.train(world.submit(gpus={"min": 4}))
    world.submit(gpus={"min": 4}, name="secret project")
    eve = User.objects.get(email="eve@example.org")
    mine = world.submit(user=eve, project="speech", gpus={"min": 4})
    world.round()
    answer = stranger.get(f"jobs/{mine.number}/explanation")
    assert [(e["name"], e["project"]) for e in answer.json["ahead"]] == [(None, "Vision")]
    assert "secret project" not in answer.text
    assert answer.json["weighed"] == []


def test_a_running_job_sees_what_was_weighed(world: World, api: Api) -> None:
    first, second = rescaled(world)
    answer = api.get(f"jobs/{first.number}/explanation").json
    assert {entry["number"] for entry in answer["weighed"]} == {first.number, second.number}
    assert all(entry["variance"] is not None for entry in answer["weighed"])
    assert answer["round"] is not None


def test_checkpoints_that_the_program_no_longer_keeps_are_not_offered(world: World, api: Api) -> None:
    world.train(job := world.submit(checkpoint={"keep": 2}))
    for step in (10, 20, 30):
        world.checkpoint(job, step)
    assert [one["step"] for one in api.get(f"jobs/{job.number}").json["checkpoints"]] == [30, 20]


def test_an_ended_job_is_explained_by_its_end(world: World, api: Api) -> None:
    world.train(job := world.submit(retry={"limit": 0}))
    world.gone(job, "user_error", exit_code=3)
    answer = api.get(f"jobs/{job.number}/explanation").json
    assert "exit code 3" in answer["text"]
    assert answer["ahead"] == answer["weighed"] == []


def test_a_detail_shows_attempts_checkpoints_and_curves(world: World, api: Api) -> None:
    world.train(job := world.submit(retry={"on": ["user_error"]}))
    world.checkpoint(job, 50)
    world.gone(job, "user_error", exit_code=1)
    detail = api.get(f"jobs/{job.number}").json
    assert [run["attempt"] for run in detail["runs"]] == [2, 1]
    assert detail["runs"][1]["exit"]["exit_code"] == 1
    assert detail["checkpoints"][0]["step"] == 50
    assert detail["curve"]["k1"]["steps_per_s"] == [10.0, 18.0, 24.0, 28.0]
    assert detail["curve"]["k1"]["source"] == "user"
    assert Run.objects.filter(job=job).count() == 2
    assert JobEvent.objects.filter(job=job).exists()
