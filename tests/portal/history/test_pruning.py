"""How many points of metrics a run keeps, while it lives and long after its end."""

import itertools
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from portal.history import metrics
from portal.jobs.models import MetricPoint, Run
from tests.portal.world import World

pytestmark = pytest.mark.django_db
NOW = timezone.now()


def steps_of(run: Run) -> list[int]:
    return list(MetricPoint.objects.filter(run=run).order_by("step").values_list("step", flat=True))


def run_with(world: World, points: int, ended_days_ago: float | None = None) -> Run:
    run = world.submit().run
    assert run is not None
    began = NOW - timedelta(days=400)
    MetricPoint.objects.bulk_create(
        MetricPoint(run=run, epoch=1, step=i, at=began + timedelta(seconds=10 * i), values={"loss": 1.0})
        for i in range(points)
    )
    if ended_days_ago is not None:
        Run.objects.filter(pk=run.pk).update(state="finished", ended_at=NOW - timedelta(days=ended_days_ago))
    return run


def test_a_run_that_ended_long_ago_keeps_as_many_as_a_chart_shows(world: World) -> None:
    old, young, live = run_with(world, 1_000, 31), run_with(world, 1_000, 29), run_with(world, 1_000)
    metrics.prune(NOW)
    kept = steps_of(old)
    assert len(kept) == metrics.LASTING_POINTS
    assert (kept[0], kept[-1]) == (0, 999)
    gaps = {after - before for before, after in itertools.pairwise(kept)}
    assert gaps <= {5, 6}  # evenly over its life
    assert len(steps_of(young)) == len(steps_of(live)) == 1_000


@pytest.mark.parametrize("points", [0, 1, 2, 199, 200, 201, 399])
def test_few_points_stay(world: World, points: int) -> None:
    run = run_with(world, points, 31)
    metrics.prune(NOW)
    kept = steps_of(run)
    assert len(kept) == min(points, metrics.LASTING_POINTS)
    assert kept[:1] == [0][:points]
    assert kept[-1:] == [points - 1][:points]


def test_it_is_done_once_and_how_long_they_stay_is_a_setting(world: World, settings: Any) -> None:
    run = run_with(world, 500, 20)
    metrics.prune(NOW)
    assert len(steps_of(run)) == 500
    settings.EVENKEEL_KEEP = replace(settings.EVENKEEL_KEEP, metrics_days=10)
    metrics.prune(NOW)
    kept = steps_of(run)
    assert len(kept) == metrics.LASTING_POINTS
    assert metrics.thin_ended(NOW) == 0
    assert steps_of(run) == kept


def test_a_crowded_live_run_keeps_its_newest_points_and_every_second_older_one(world: World) -> None:
    crowded, other = run_with(world, metrics.MAX_POINTS + 2), run_with(world, metrics.MAX_POINTS)
    metrics.prune(NOW)
    half = (metrics.MAX_POINTS + 2) // 2
    kept = steps_of(crowded)
    assert kept == [*range(1, half, 2), *range(half, metrics.MAX_POINTS + 2)]
    assert len(steps_of(other)) == metrics.MAX_POINTS


def test_more_than_one_batch_is_dealt_with_in_a_pruning(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "_RUNS", 2)
    runs = [run_with(world, 250, 40 + i) for i in range(5)]
    metrics.prune(NOW)
    assert [len(steps_of(run)) for run in runs] == [metrics.LASTING_POINTS] * 5


def test_a_pruning_ends_in_time_and_the_next_goes_on(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "_RUNS", 2)
    monkeypatch.setattr(metrics, "_PASS_S", 0.0)
    runs = [run_with(world, 250, 50 - i) for i in range(3)]
    metrics.prune(NOW)
    assert [len(steps_of(run)) for run in runs] == [200, 200, 250]
    metrics.prune(NOW)
    assert [len(steps_of(run)) for run in runs] == [200, 200, 200]
