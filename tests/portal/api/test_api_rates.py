"""How many requests somebody may send, and what the answers say of it."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.core.cache import cache

from accounts.models import User
from portal.api.http import rates
from portal.jobs.models import JobEvent
from portal.reporting.run_tokens import run_token
from tests.portal.api_calls import Api
from tests.portal.world import World

pytestmark = pytest.mark.django_db
NAMES = {"user": "USER", "anonymous": "ANONYMOUS", "run": "RUN"}


@pytest.fixture
def world(settings: Any) -> World:
    cache.clear()
    settings.RATES_PER_MINUTE = {"user": 3, "anonymous": 3, "run": 3}
    return World()


@pytest.fixture(autouse=True)
def one_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("portal.api.http.rates.time.time", lambda: 1_000_000_020.0)


def test_each_token_has_its_own_count(world: World) -> None:
    first, second = Api(world.user), Api(world.user)
    answers = [first.get("projects") for _ in range(4)]
    assert [answer.status for answer in answers] == [200, 200, 200, 429]
    assert second.get("projects").status == 200


def test_a_refusal_says_when_to_come_back(world: World) -> None:
    api = Api(world.user)
    first, *_, refused = [api.get("projects") for _ in range(4)]
    assert first.headers["RateLimit-Policy"] == '"token";q=3;w=60'
    assert first.headers["RateLimit"] == '"token";r=2;t=60'
    assert "Retry-After" not in first.headers
    assert refused.headers["RateLimit"] == '"token";r=0;t=60'
    assert refused.headers["Retry-After"] == "60"
    assert refused.json["title"] == "Too many requests"


def test_nobody_counts_by_address(world: World) -> None:
    assert [Api().get("session").status for _ in range(4)] == [200, 200, 200, 429]
    assert Api(world.user).get("projects").status == 200


def test_guessing_tokens_is_counted_too(world: World) -> None:
    statuses = [Api(token=f"ek_0123456789_{n}").get("jobs").status for n in range(4)]
    assert statuses == [401, 401, 401, 429]


def test_what_permissions_refuse_is_counted_too(world: World) -> None:
    api = Api(world.user)
    assert [api.post("nodes/a/drain").status for _ in range(4)] == [403, 403, 403, 429]


def test_a_run_has_its_own_count_which_nobody_else_can_use_up(world: World) -> None:
    job = world.submit()
    world.train(job)
    run = world.run(job)
    path, body = f"runs/{run.pk}/reports", {"epoch": run.epoch, "sent_at": 1.0}
    for _ in range(5):
        Api(token="ekr_wrong").post(path, body | {"seq": 1})
    runner = Api(token=run_token(run.pk, run.epoch))
    answers = [runner.post(path, body | {"seq": 10 + n}) for n in range(4)]
    assert [answer.status for answer in answers] == [200, 200, 200, 429]
    assert re.match(r'"run";q=3;w=60', answers[0].headers["RateLimit-Policy"])


def test_notices_of_a_run_are_bounded(world: World, settings: Any) -> None:
    settings.RATES_PER_MINUTE = settings.RATES_PER_MINUTE | {"run": 0}
    job = world.submit()
    world.train(job)
    run = world.run(job)
    runner = Api(token=run_token(run.pk, run.epoch))
    for n in range(4):
        body = {"epoch": run.epoch, "sent_at": 1.0, "seq": 10 + n, "notices": [f"{n}.{i}" for i in range(40)]}
        assert runner.post(f"runs/{run.pk}/reports", body).status == 200
    said = list(JobEvent.objects.filter(kind="notice").order_by("pk").values_list("text", flat=True))
    assert len(said) == 101
    assert "left out" in said[-1]


def test_counting_is_one_step_for_everybody() -> None:
    cache.clear()
    with ThreadPoolExecutor(8) as pool:
        standings = list(pool.map(lambda _: rates.count("test", "somebody", 50), range(200)))
    assert sorted(standing.used for standing in standings if standing) == list(range(1, 201))
    assert sum(1 for standing in standings if standing and standing.allowed) == 50


def test_without_a_limit_nothing_is_counted(world: World, settings: Any) -> None:
    settings.RATES_PER_MINUTE = settings.RATES_PER_MINUTE | {"user": 0}
    api = Api(User.objects.create_superuser("root@example.org", "x"))
    answers = [api.get("projects") for _ in range(6)]
    assert {answer.status for answer in answers} == {200}
    assert "RateLimit" not in answers[0].headers
