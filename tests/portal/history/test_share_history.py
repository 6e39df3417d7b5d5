"""Shares over time: what is filed, how it is thinned, who sees it; and a priority's course."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from accounts.fair_share import configure, next_reset
from accounts.models import Project, User
from portal.cluster.policy import set_policy
from portal.history import shares
from portal.jobs.clusters import default_cluster
from portal.jobs.models import Run, ShareSample
from portal.rounds import pruning
from portal.rounds.fairness_tasks import note_shares
from tests.portal.api_calls import Api
from tests.portal.world import World

pytestmark = pytest.mark.django_db


@pytest.fixture
def world() -> World:
    world = World(policy="multifactor")
    set_policy(actor=None, cluster=world.cluster, name="multifactor", parameters={})
    return world


def file_at(project: Project, at: datetime, effective: float = 0.5) -> None:
    values = {"norm_shares": 0.5, "usage_gpu_s": 7_200.0, "effective_usage": effective, "factor": 0.7}
    ShareSample.objects.create(cluster=default_cluster(), project=project, at=at, **values)


def test_every_project_is_filed_once_for_a_quarter_of_an_hour(world: World) -> None:
    Project.objects.create(key="idle", name="Idle")
    world.train(world.submit(gpus={"min": 4}))
    note_shares()
    note_shares()
    rows = {row.project.key: row for row in ShareSample.objects.select_related("project")}
    assert set(rows) == {"vision", "idle"}
    assert rows["vision"].effective_usage == pytest.approx(1.0)
    assert rows["idle"].effective_usage == 0.0
    assert rows["idle"].factor == 1.0
    assert rows["vision"].factor == pytest.approx(0.25, abs=0.01)
    assert rows["vision"].at.timestamp() % shares.EVERY_S == 0


def test_under_fair_tree_projects_have_no_factor(world: World) -> None:
    set_policy(actor=None, cluster=world.cluster, name="multifactor", parameters={"fair_share": "fair_tree"})
    note_shares()
    assert list(ShareSample.objects.values_list("factor", flat=True)) == [None]


def test_history_is_bounded_however_long_it_runs(world: World, settings: Any) -> None:
    settings.EVENKEEL_KEEP = replace(settings.EVENKEEL_KEEP, shares_days=40)
    now = timezone.now()
    times = [now - timedelta(minutes=15 * n) for n in range(4 * 24 * 60)]
    values = {"norm_shares": 0.5, "usage_gpu_s": 0.0, "effective_usage": 0.5, "factor": 0.5}
    ShareSample.objects.bulk_create(
        [ShareSample(cluster=world.cluster, project=world.project, at=at, **values) for at in times]
    )
    pruning.prune(now)
    left = sorted(now - at for at in ShareSample.objects.values_list("at", flat=True))
    day = timedelta(days=1)
    assert left[-1] <= 40 * day
    assert len([age for age in left if age <= day]) == 97
    assert 2 * 13 * 24 <= len([age for age in left if day < age <= 14 * day]) <= 2 * (13 * 24 + 2)
    assert 2 * 25 <= len([age for age in left if age > 14 * day]) <= 2 * 28
    before = len(left)
    pruning.prune(now)
    assert ShareSample.objects.count() == before


def test_the_history_has_so_many_points_at_most_oldest_first(world: World) -> None:
    now = timezone.now()
    for n in range(400):
        file_at(world.project, now - timedelta(hours=n, minutes=1), effective=n / 400)
    (row,) = Api(world.user).get("shares/history?days=14").json["results"]
    assert row["project"]["key"] == "vision"
    assert 100 < len(row["points"]) <= shares.MAX_POINTS + 1
    at = [point["at"] for point in row["points"]]
    assert at == sorted(at)
    assert row["points"][-1]["effective_usage"] == 0.0
    assert row["points"][-1]["usage_gpu_hours"] == 2.0
    assert len(Api(world.user).get("shares/history?days=1").json["results"][0]["points"]) <= 25


def test_peaks_and_lows_outlive_the_thinning(world: World, settings: Any) -> None:
    settings.EVENKEEL_KEEP = replace(settings.EVENKEEL_KEEP, shares_days=400)
    now = shares.tick(timezone.now())
    values = {"norm_shares": 0.5, "usage_gpu_s": 0.0, "factor": 0.5}
    odd = {5: 0.975, 90: 0.025, 500: 0.99, 900: 0.01, 4_000: 1.0, 5_000: 0.0}
    ShareSample.objects.bulk_create(
        ShareSample(
            cluster=world.cluster,
            project=world.project,
            at=now - timedelta(minutes=15 * n),
            effective_usage=odd.get(n, 0.5),
            **values,
        )
        for n in range(90 * 24 * 4)
    )

    def extremes(days: int) -> set[float]:
        points = Api(world.user).get(f"shares/history?days={days}").json["results"][0]["points"]
        assert len(points) <= shares.MAX_POINTS + 1
        assert points[-1]["effective_usage"] == 0.5
        return {point["effective_usage"] for point in points} - {0.5}

    for _ in range(2):
        assert extremes(14) == {0.975, 0.025, 0.99, 0.01}
        assert extremes(90) == set(odd.values())
        pruning.prune(now)


def test_of_other_projects_nothing_is_seen(world: World) -> None:
    other = Project.objects.create(key="else", name="Else")
    note_shares()
    assert [row["project"]["key"] for row in Api(world.user).get("shares/history").json["results"]] == ["vision"]
    assert Api(world.user).get(f"shares/history?project={other.key}").status == 404
    root = Api(User.objects.create_superuser("root@example.org", "x"))
    assert {row["project"]["key"] for row in root.get("shares/history").json["results"]} == {"vision", "else"}
    assert [row["project"]["key"] for row in root.get("shares/history?limit=1").json["results"]] == ["else"]
    assert Api().get("shares/history").status == 401
    assert root.get("shares/history?days=0").fields == ["days"]


@pytest.mark.parametrize(
    ("reset", "expected"),
    [
        ("daily", datetime(2026, 3, 6, tzinfo=UTC)),
        ("weekly", datetime(2026, 3, 9, tzinfo=UTC)),
        ("monthly", datetime(2026, 4, 1, tzinfo=UTC)),
        ("quarterly", datetime(2026, 4, 1, tzinfo=UTC)),
        ("yearly", datetime(2027, 1, 1, tzinfo=UTC)),
    ],
)
def test_the_next_reset_is_the_beginning_of_the_next_period(reset: str, expected: datetime) -> None:
    now = datetime(2026, 3, 5, 15, tzinfo=UTC)
    configure(half_life_s=None, reset=reset, now=now)
    assert next_reset(now) == expected.timestamp()


def test_a_course_falls_for_whom_runs_and_rises_with_age(world: World) -> None:
    bo = User.objects.create_user("bo@example.org", "x")
    speech = Project.objects.create(key="speech", name="Speech")
    speech.memberships.create(user=bo)
    running = world.submit(gpus={"min": 4}, steps=10**9)
    world.train(running)
    mine, theirs = world.submit(gpus={"min": 4}), world.submit(user=bo, project="speech", gpus={"min": 4})
    api = Api(User.objects.create_superuser("root@example.org", "x"))

    def course(number: int) -> list[dict[str, float]]:
        found = api.get(f"jobs/{number}/priority").json
        for point in found["course"]:
            points = sum(factor["points"] for factor in point["factors"])
            assert point["priority"] == pytest.approx(points, abs=1.001)
        assert found["course"][0]["priority"] == found["priority"]
        return [{factor["name"]: factor["points"] for factor in point["factors"]} for point in found["course"]]

    for number in (mine.number, theirs.number):
        ages = [point["age"] for point in course(number)]
        assert ages == sorted(ages)
        assert ages[-1] == pytest.approx(10_000, rel=0.001)
    ours = [point["fair_share"] for point in course(mine.number)]
    assert ours[0] >= ours[-1]
    # When it is known to end soon, others' factors do not go on rising for its sake.
    Run.objects.filter(job=running).update(steps_per_s=10.0**9, step=10**9 - 1)
    assert course(theirs.number)[-1]["fair_share"] == pytest.approx(course(theirs.number)[1]["fair_share"])
