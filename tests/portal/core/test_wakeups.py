"""Rounds leave time to others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.core.cache import cache

from portal.core import task_queue, wake
from portal.jobs.models import Cluster
from portal.rounds import tasks
from tests.portal.world import World

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    cache.clear()
    yield
    cache.clear()


def test_after_a_long_round_the_next_one_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    pk = World().cluster.pk
    rounds: list[Cluster] = []
    asked: list[float] = []
    monkeypatch.setattr(tasks, "_round", rounds.append)
    monkeypatch.setattr(wake, "schedule_round", lambda countdown_s, cluster_id: asked.append(countdown_s))
    wake.rest(0.05, pk)
    tasks.run_round()
    assert (len(rounds), asked) == (1, [])
    wake.rest(0.7, pk)
    tasks.run_round()
    assert len(rounds) == 1
    assert 0 < asked[0] <= 2.1
    wake.rest(60.0, pk)
    assert 2.1 < wake.rest_left_s(pk) <= 3.0


def test_a_burst_asks_at_once_and_once_more_for_all_that_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []
    monkeypatch.setattr(wake._Burst, "_known", {})

    def ask(_name: str, *_arguments: object, countdown: float = 0.0) -> None:
        asked.append(countdown)

    monkeypatch.setattr(task_queue, "send", ask)
    monkeypatch.setattr(wake, "_BURST_S", 30.0)
    for _ in range(50):
        cache.delete(wake.ROUND_KEY)  # as the round does that begins
        wake.schedule_round()
    assert asked == [0.0, 30.0]
    wake.schedule_round(7.0)
    assert asked == [0.0, 30.0, 7.0]
