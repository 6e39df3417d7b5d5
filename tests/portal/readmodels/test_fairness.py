"""Relative throughput and slowdown: now, filed every minute, merged with age, and of jobs that ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis
from django.conf import settings
from django.core.cache import cache
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounts.models import Project, User
from portal.cluster.policy import set_policy
from portal.history import fairness
from portal.jobs.clusters import default_cluster
from portal.jobs.models import Dependency, FairnessSample, Job, Run
from portal.lifecycle.suspend import hold_job
from portal.rounds import pruning
from portal.rounds.fairness_tasks import note_fairness
from tests.portal.api_calls import Api
from tests.portal.world import World

pytestmark = pytest.mark.django_db
#: Two of four GPUs each: 18 of the 28 steps/s that it would have alone, and 1.5 of 2.
FAST, SLOW = 18 / 28, 0.75
VARIANCE = ((SLOW - FAST) / 2) ** 2
ROUGHLY = 1e-4


@pytest.fixture
def world() -> World:
    world = World()
    set_policy(actor=None, cluster=world.cluster, name="f_scheduling", parameters={"v_bound": 0.05})
    return world


@pytest.fixture
def bo() -> User:
    return User.objects.create_user("bo@example.org", "x")


@pytest.fixture
def busy(world: World, bo: User) -> World:
    """Ana's fast job in Vision and Bo's slow one in Speech have two GPUs each; one of Ana's needs all four."""
    speech = Project.objects.create(key="speech", name="Speech")
    speech.memberships.create(user=bo)
    world.submit("fast", name="quick")
    world.submit("slow", user=bo, project="speech", name="secret-name")
    world.round()
    waits = world.submit(gpus={"min": 4}, name="large")
    world.round()
    for job in Job.objects.exclude(pk=waits.pk):
        assert world.gpus(job) == 2
        world.ready(job)
    return world


def test_everybody_sees_the_figures_of_all_and_names_of_their_own_alone(busy: World, bo: User) -> None:
    found = Api(busy.user).get("fairness").json
    everybody = found["cluster"]
    assert (everybody["running"], everybody["known"], everybody["waiting"]) == (2, 2, 1)
    assert everybody["variance"] == pytest.approx(VARIANCE, abs=1e-6)
    spread = {"lowest": FAST, "median": (FAST + SLOW) / 2, "mean": (FAST + SLOW) / 2, "highest": SLOW}
    assert everybody["relative_throughput"] == pytest.approx(spread, abs=ROUGHLY)
    assert everybody["slowdown"] == pytest.approx({"mean": (1 / FAST + 1 / SLOW) / 2, "highest": 1 / FAST}, abs=ROUGHLY)
    assert found["policy"] == {"name": "f_scheduling", "v_bound": 0.05}
    assert found["within_bound"] is True
    assert [row["project"]["key"] for row in found["projects"]] == ["vision"]
    assert found["projects"][0]["relative_throughput"]["median"] == pytest.approx(FAST, abs=ROUGHLY)
    assert found["projects"][0]["waiting"] == 1
    assert [(row["project"]["key"], row["user"]["email"]) for row in found["users"]] == [("vision", "ana@example.org")]
    assert [job["name"] for job in found["worst_off"]] == ["quick"]
    assert [job["name"] for job in found["longest_waiting"]] == ["large"]
    text = Api(busy.user).get("fairness").text
    assert "secret-name" not in text
    assert "speech" not in text.lower()
    assert "bo@example.org" not in text
    theirs = Api(bo).get("fairness").json
    assert [job["name"] for job in theirs["worst_off"]] == ["secret-name"]
    assert theirs["longest_waiting"] == []
    assert theirs["cluster"] == everybody


def test_the_worst_off_job_comes_first_with_its_why(busy: World) -> None:
    root = Api(User.objects.create_superuser("root@example.org", "x"))
    found = root.get("fairness").json
    first, second = found["worst_off"]
    assert (first["name"], second["name"]) == ("quick", "secret-name")
    assert first["relative_throughput"] == pytest.approx(FAST, abs=ROUGHLY)
    assert first["slowdown"] == pytest.approx(1 / FAST, abs=ROUGHLY)
    assert first["gpus"] == 2
    assert first["reason"]["text"] == busy.run(Job.objects.get(name="quick")).reason_text
    assert [row["project"]["key"] for row in found["projects"]] == ["vision", "speech"]
    only = root.get("fairness?project=speech").json
    assert [job["name"] for job in only["worst_off"]] == ["secret-name"]
    assert only["longest_waiting"] == []
    assert root.get("fairness?project=nowhere").status == 404


def test_a_job_that_is_held_back_does_not_wait_and_one_on_trial_is_not_known(busy: World) -> None:
    hold_job(actor=busy.user, job=Job.objects.get(name="large"))
    Job.objects.filter(name="quick").update(spec={"command": "train"})
    found = Api(busy.user).get("fairness").json
    assert found["longest_waiting"] == []
    assert (found["cluster"]["waiting"], found["cluster"]["running"], found["cluster"]["known"]) == (0, 2, 1)
    assert found["projects"][0]["relative_throughput"] is None
    assert found["projects"][0]["slowdown"] is None
    assert found["worst_off"] == []


def test_whether_the_bound_holds_is_said_where_there_is_one(busy: World) -> None:
    api = Api(busy.user)
    set_policy(actor=None, cluster=busy.cluster, name="f_scheduling", parameters={"v_bound": 0.001})
    assert api.get("fairness").json["within_bound"] is False
    set_policy(actor=None, cluster=busy.cluster, name="fifo_gang", parameters={})
    found = api.get("fairness").json
    assert found["policy"] == {"name": "fifo_gang", "v_bound": None}
    assert found["within_bound"] is None


def test_it_says_the_same_as_the_overview(busy: World) -> None:
    redis.Redis.from_url(settings.REDIS_URL).delete("live:watched")  # what an earlier test looked at is not kept
    tiles = Api(busy.user).get("live/cluster").json["state"]["tiles"]
    found = Api(busy.user).get("fairness").json["cluster"]
    assert tiles["variance"] == pytest.approx(found["variance"], abs=1e-5)
    assert tiles["relative_throughputs"][0] == found["relative_throughput"]["lowest"]


def test_a_minute_is_filed_once_of_all_who_have_jobs(busy: World) -> None:
    Project.objects.create(key="idle", name="Idle")
    note_fairness()
    note_fairness()
    rows = {(row.project and row.project.key, row.user and row.user.email): row for row in FairnessSample.objects.all()}
    assert set(rows) == {
        (None, None),
        ("vision", None),
        ("vision", "ana@example.org"),
        ("speech", None),
        ("speech", "bo@example.org"),
    }
    everybody, vision = rows[None, None], rows["vision", None]
    assert everybody.variance == pytest.approx(VARIANCE)
    assert (everybody.bound, vision.bound) == (0.05, None)
    assert (vision.holding, vision.waiting) == (1, 1)
    assert vision.lowest == pytest.approx(FAST)
    assert vision.slowdown == pytest.approx(1 / FAST)
    assert everybody.at.timestamp() % 60 == 0


def _statements(call: Callable[[], object]) -> int:
    cache.clear()
    with CaptureQueriesContext(connection) as captured:
        call()
    return len(captured)


@pytest.mark.parametrize("what", ["sample", "now", "history", "ended"])
def test_its_statements_do_not_grow_with_jobs_or_people(busy: World, what: str) -> None:
    api = Api(busy.user)
    calls: dict[str, Callable[[], object]] = {
        "sample": note_fairness,
        "now": lambda: api.get("fairness"),
        "history": lambda: api.get("fairness/history?by=user"),
        "ended": lambda: api.get("fairness/ended?group_by=user"),
    }
    for _ in range(2):
        busy.submit(gpus={"min": 99})
    busy.round()
    note_fairness()
    calls[what]()
    few = _statements(calls[what])
    busy.nodes["b"], busy.reachable["b"] = 24, True
    busy.inventory()
    for n in range(12):
        person = User.objects.create_user(f"p{n}@example.org", "x")
        busy.project.memberships.create(user=person)
        small = busy.submit(user=person, gpus={"min": 1, "max": 1})
    busy.round()
    busy.ready(small)
    FairnessSample.objects.all().delete()
    note_fairness()
    assert FairnessSample.objects.filter(user__isnull=False).count() == 14
    assert _statements(calls[what]) == few


def _file(at: datetime, project: Project | None = None, **values: Any) -> None:
    figures = {"lowest": 0.2, "median": 0.5, "mean": 0.5, "highest": 0.8, "slowdown": 2.0, "variance": 0.01}
    row = {"known_samples": 1, "holding": 4.0, "waiting": 0.0, **figures, **values}
    FairnessSample.objects.create(cluster=default_cluster(), project=project, at=at, **row)


def test_merged_points_keep_means_and_extremes(world: World) -> None:
    now = datetime(2026, 11, 22, 12, tzinfo=UTC)
    quarter = datetime(2026, 11, 22, 8, 15, tzinfo=UTC)
    _file(quarter, world.project, lowest=0.1, mean=0.4, holding=2.0, waiting=1.0)
    _file(quarter + timedelta(minutes=1), world.project, highest=0.9, mean=0.6, holding=4.0, variance=0.03)
    unknown = dict.fromkeys(("lowest", "median", "mean", "highest", "slowdown", "variance"))
    _file(quarter + timedelta(minutes=2), world.project, known_samples=0, holding=0.0, waiting=5.0, **unknown)
    _file(quarter + timedelta(minutes=15), world.project)
    pruning.prune(now)
    first, second = FairnessSample.objects.order_by("at")
    assert (first.at, first.step_s, first.samples, first.known_samples) == (quarter, 900, 3, 2)
    assert (first.lowest, first.highest) == (0.1, 0.9)
    assert [first.mean, first.variance, first.holding, first.waiting] == pytest.approx([0.5, 0.02, 2.0, 2.0])
    assert (second.at, second.samples) == (quarter + timedelta(minutes=15), 1)
    pruning.prune(now + timedelta(days=2))
    hour = FairnessSample.objects.get()
    assert (hour.at.minute, hour.step_s, hour.samples, hour.known_samples) == (0, 3_600, 4, 3)
    assert hour.mean == pytest.approx((0.4 + 0.6 + 0.5) / 3)
    pruning.prune(now + timedelta(days=20))
    assert FairnessSample.objects.get().step_s == 86_400


def test_history_is_bounded_however_long_it_runs(world: World, settings: Any) -> None:
    settings.EVENKEEL_KEEP = replace(settings.EVENKEEL_KEEP, fairness_days=40)
    now = fairness.tick(timezone.now())
    values = {"known_samples": 1, "holding": 1.0, "waiting": 0.0, "lowest": 0.5, "mean": 0.5, "highest": 0.5}
    times = [now - timedelta(minutes=n) for n in (*range(240), *range(240, 60 * 24 * 60, 30))]
    FairnessSample.objects.bulk_create(
        [FairnessSample(cluster=world.cluster, project=world.project, at=at, **values) for at in times]
    )
    for _ in range(2):
        pruning.prune(now)
        rows = list(FairnessSample.objects.order_by("-at").values_list("at", "step_s", "samples"))
        ages = [(now - at, step_s) for at, step_s, _ in rows]
        assert ages[-1][0] <= timedelta(days=40)
        assert {step_s for _, step_s in ages} == {60, 900, 3_600, 86_400}
        assert 180 <= len([step_s for _, step_s in ages if step_s == 60]) <= 196
        assert len(rows) < 1_000
        assert sum(samples for _, _, samples in rows) <= len([at for at in times if now - at <= timedelta(days=41)])


def test_a_point_that_comes_late_does_not_stop_the_merging(world: World) -> None:
    now = datetime(2026, 11, 22, 12, tzinfo=UTC)
    for _ in range(2):
        _file(datetime(2026, 11, 22, 8, tzinfo=UTC), world.project)
        pruning.prune(now)
    assert FairnessSample.objects.get().samples == 1


def test_series_have_so_many_points_at_most_the_worst_off_first(world: World) -> None:
    now = fairness.tick(timezone.now())
    other = Project.objects.create(key="else", name="Else", parent=world.project)
    for n in range(300):
        _file(now - timedelta(minutes=n), world.project, mean=0.6)
        _file(now - timedelta(minutes=n), other, mean=0.3, lowest=n / 1_000 + 0.01)
    api = Api(world.user)
    found = api.get("fairness/history?points=100").json
    assert [row["project"]["key"] for row in found["results"]] == ["else", "vision"]
    worst = found["results"][0]
    assert worst["figures"]["relative_throughput"] == {"lowest": 0.01, "median": 0.5, "mean": 0.3, "highest": 0.8}
    assert worst["figures"]["samples"] == 300
    assert len(worst["points"]) <= 100
    at = [point["at"] for point in worst["points"]]
    assert at == sorted(at)
    assert worst["points"][-1]["relative_throughput"]["lowest"] == 0.01
    page = api.get("fairness/history?limit=1").json
    assert [row["project"]["key"] for row in page["results"]] == ["else"]
    following = api.get(page["next"].partition("/api/v1/")[2]).json
    assert [row["project"]["key"] for row in following["results"]] == ["vision"]
    assert following["next"] is None


def test_of_other_projects_no_series_is_told(busy: World, bo: User) -> None:
    note_fairness()
    api = Api(busy.user)
    for by in ("project", "user"):
        (row,) = api.get(f"fairness/history?by={by}").json["results"]
        assert row["project"]["key"] == "vision"
        assert (row["user"] or {"email": "ana@example.org"})["email"] == "ana@example.org"
    (cluster,) = api.get("fairness/history?by=cluster").json["results"]
    assert (cluster["project"], cluster["user"]) == (None, None)
    (point,) = cluster["points"]
    assert point["variance"] == pytest.approx(VARIANCE, abs=1e-6)
    assert point["v_bound"] == 0.05
    assert api.get("fairness/history?project=speech").status == 404
    assert api.get("fairness/history?by=cluster&project=vision").fields == ["project"]
    assert api.get("fairness/history?from_at=2026-01-02T00:00Z&to_at=2026-01-01T00:00Z").fields == ["from_at"]
    stranger = Api(User.objects.create_user("stranger@example.org", "x"))
    assert stranger.get("fairness/history?by=user").json["results"] == []
    assert stranger.get("fairness").json["projects"] == []
    assert stranger.get("fairness").json["cluster"]["running"] == 2
    for path in ("fairness", "fairness/history", "fairness/ended"):
        assert Api().get(path).status == 401


def finished(world: World, waited_s: float = 0.0, **keys: Any) -> Job:
    """A job of 1,000 steps, which alone would take 1,000 / 28 s; submitted so long before its end."""
    job = world.submit("fast", **keys)
    world.train(job)
    Job.objects.filter(pk=job.pk).update(submitted_at=timezone.now() - timedelta(seconds=waited_s))
    world.gone(job, "done", step=1000)
    return job


def test_a_job_that_did_all_its_steps_keeps_its_slowdown(world: World) -> None:
    run = world.run(finished(world, 250.0))
    assert run.state == "FINISHED"
    assert run.slowdown == pytest.approx(250 / (1_000 / 28), rel=0.01)


def test_time_that_it_was_held_or_waited_for_others_does_not_count(world: World) -> None:
    before = finished(world)
    job = world.submit("fast")
    Dependency.objects.create(job=job, kind=Dependency.Kind.AFTER_ANY, on=before)
    world.train(job)
    now = timezone.now()
    Run.objects.filter(job=before).update(ended_at=now - timedelta(seconds=100))
    Job.objects.filter(pk=job.pk).update(submitted_at=now - timedelta(days=1))
    world.gone(job, "done", step=1000)
    assert world.run(job).slowdown == pytest.approx(100 / (1_000 / 28), rel=0.01)
    held, both = world.submit("fast"), world.submit("fast")
    Dependency.objects.create(job=both, kind=Dependency.Kind.AFTER_ANY, on=before)
    for other in (held, both):
        world.train(other)
        eligible = {"submitted_at": now - timedelta(days=1), "eligible_at": timezone.now() - timedelta(seconds=50)}
        Job.objects.filter(pk=other.pk).update(**eligible)
        world.gone(other, "done", step=1000)
    assert world.run(held).slowdown == pytest.approx(50 / (1_000 / 28), rel=0.05)
    assert world.run(both).slowdown is None  # how much of the hold lay after the dependency is kept nowhere


def test_of_a_job_that_failed_or_of_which_nothing_is_known_there_is_none(world: World) -> None:
    failed = world.submit("fast", retry={"limit": 0})
    world.train(failed)
    world.gone(failed, "user_error", exit_code=1)
    unknown = world.submit(throughput={})
    world.train(unknown)
    world.gone(unknown, "done")
    assert [world.run(job).slowdown for job in (failed, unknown)] == [None, None]
    (row,) = Api(world.user).get("fairness/ended").json["results"]
    assert (row["jobs"], row["unknown"], row["slowdown"]) == (0, 1, None)


def test_percentiles_lie_linearly_between_the_jobs(world: World, bo: User) -> None:
    speech = Project.objects.create(key="speech", name="Speech")
    speech.memberships.create(user=bo)
    for value in (1.0, 2.0, 3.0, 4.0, 10.0):
        job = finished(world)
        Run.objects.filter(job=job).update(slowdown=value)
    Run.objects.filter(job=finished(world, user=bo, project="speech")).update(slowdown=50.0)
    api = Api(world.user)
    (row,) = api.get("fairness/ended").json["results"]
    assert row == {
        "key": "vision",
        "label": "Vision",
        "jobs": 5,
        "unknown": 0,
        "slowdown": {"p50": 3.0, "p90": 7.6, "highest": 10.0},
    }
    assert [one["key"] for one in api.get("fairness/ended?group_by=user").json["results"]] == ["ana@example.org"]
    assert [one["jobs"] for one in api.get("fairness/ended?group_by=all").json["results"]] == [5]
    root = Api(User.objects.create_superuser("root@example.org", "x"))
    assert [one["key"] for one in root.get("fairness/ended").json["results"]] == ["speech", "vision"]
    assert root.get("fairness/ended?group_by=all").json["results"][0]["slowdown"]["highest"] == 50.0
    assert api.get("fairness/ended?project=speech").status == 404
    later = (timezone.now() + timedelta(days=1)).isoformat().replace("+00:00", "Z")
    assert api.get(f"fairness/ended?from_at={later}&to_at=2199-01-01T00:00Z").fields == ["from_at"]


def test_months_are_those_in_which_jobs_ended_newest_first(world: World) -> None:
    for month, value in ((3, 2.0), (5, 4.0), (5, 6.0)):
        job = finished(world)
        Run.objects.filter(job=job).update(ended_at=datetime(2026, month, 9, tzinfo=UTC), slowdown=value)
    path = "fairness/ended?group_by=month&from_at=2026-01-01T00:00Z&to_at=2026-06-01T00:00Z"
    found = Api(world.user).get(path).json["results"]
    medians = [(row["key"], row["jobs"], row["slowdown"]["p50"]) for row in found]
    assert medians == [("2026-05", 2, 5.0), ("2026-03", 1, 2.0)]
