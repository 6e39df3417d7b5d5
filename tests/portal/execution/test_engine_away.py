"""While a cluster's engine does not answer nothing is planned, launched, stopped or ended; every place says so."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from portal.execution import executors
from portal.execution import observe as observe_module
from portal.jobs.models import Cluster, Command, JobEvent, Run
from portal.lifecycle.suspend import hold_job
from portal.live import publish
from portal.reporting import timeouts
from portal.rounds import tasks
from scheduling.errors import ExecutorError
from scheduling.executors.base import Fact
from scheduling.lifecycle import State
from tests.portal.api_calls import Api
from tests.portal.world import World, check_invariants

pytestmark = pytest.mark.django_db


class Engine:
    """Answers while `here`."""

    single_trust_mode = supports_warm_start = supports_containers = supports_modules = False
    supports_git = supports_bundles = supports_environments = supports_secrets = supports_sharing = True
    supports_multi_node = supports_artifacts = True
    isolation_problem = None

    def __init__(self, world: World) -> None:
        self._world, self.here, self.facts = world, True, list[Fact]()
        self.remembers = False  # it was asked a while ago, and since then not

    def refresh(self) -> bool:
        remembers, self.remembers = self.remembers, False
        return remembers

    def inventory(self) -> list[Any]:
        if not self.here and not self.remembers:
            raise ExecutorError("slurmctld is away", permanent=False)
        return self._world.node_infos()

    def observe(self, known: object, renewed_at: object) -> list[Fact]:
        return self.facts


@pytest.fixture
def engine(world: World, monkeypatch: pytest.MonkeyPatch) -> Engine:
    made = Engine(world)
    monkeypatch.setattr(executors, "executor_for", lambda _: made)
    monkeypatch.setattr("portal.core.wake.rest_left_s", lambda _: 0.0)
    return made


def test_nothing_is_planned_until_the_engine_answers(world: World, engine: Engine) -> None:
    runs = world.submit(gpus={"min": 1, "max": 4})
    world.train(runs)
    before = (world.state(runs), world.run(runs).epoch, list(Command.objects.values_list("pk", flat=True)))
    engine.here = False
    waits, held = world.submit(), world.submit()
    hold_job(actor=world.user, job=held)
    for _ in range(3):
        tasks.run_round()
    assert (world.state(runs), world.run(runs).epoch, list(Command.objects.values_list("pk", flat=True))) == before
    assert world.run(waits).reason_token == "ENGINE_AWAY"
    assert world.run(held).reason_token == "HELD"
    assert JobEvent.objects.filter(kind="engine_away").count() == 1
    engine.here = True
    tasks.run_round()
    assert world.state(waits) in (State.STANDBY, State.LAUNCHING)
    assert world.run(waits).reason_token != "ENGINE_AWAY"
    assert JobEvent.objects.filter(kind="engine_back").count() == 1
    check_invariants(world)


def test_before_something_moves_the_engine_is_asked_and_has_to_answer(world: World, engine: Engine) -> None:
    engine.here, engine.remembers = False, True
    tasks.run_round()
    assert not JobEvent.objects.filter(kind="engine_away").exists()  # nothing moves: what it said last will do
    runs = world.submit(gpus={"min": 1, "max": 4})
    tasks.run_round()
    assert (Command.objects.count(), world.run(runs).reason_token) == (0, "ENGINE_AWAY")
    engine.here, engine.remembers = True, True
    tasks.run_round()
    assert world.state(runs) is State.LAUNCHING
    check_invariants(world)


def test_no_engine_is_asked_while_other_clusters_wait_to_plan(
    world: World, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, asked = False, list[bool]()

    @contextlib.contextmanager
    def lock() -> Iterator[None]:
        nonlocal held
        held = True
        yield
        held = False

    real = observe_module.observe

    def observe(*given: Any) -> bool:
        asked.append(held)
        return real(*given)

    monkeypatch.setattr(tasks, "planning_lock", lock)
    monkeypatch.setattr(tasks, "has_others", lambda cluster: True)
    monkeypatch.setattr(tasks, "observe", observe)
    engine.remembers = True
    job = world.submit(gpus={"min": 1, "max": 4})
    tasks.run_round()
    assert asked == [False, False]  # at the beginning of the round, and before the job starts
    assert world.state(job) is State.LAUNCHING


def test_a_launch_is_not_overdue_for_the_time_that_the_engine_was_away(world: World, engine: Engine) -> None:
    job = world.submit()
    world.round()
    assert world.state(job) is State.LAUNCHING
    engine.here = False
    tasks.run_round()
    long_ago = timezone.now() - timedelta(hours=2)
    Run.objects.filter(job=job).update(state_since=long_ago)
    tasks.run_round()
    assert world.state(job) is State.LAUNCHING
    engine.here = True
    tasks.run_round()
    assert world.state(job) is State.LAUNCHING
    later = timezone.now() + timedelta(seconds=700)
    timeouts.advance_clock(cluster_id=world.cluster.pk, now=later)
    assert Run.objects.get(job=job, attempt=1).state == State.FAILED  # it has had its whole time since


def test_the_live_stream_the_session_metrics_and_readyz_say_since_when(
    world: World, engine: Engine, settings: Any
) -> None:
    api = Api(world.user)

    def told() -> list[Any]:
        publish.publish_changes(timezone.now(), only="cluster", wait=True)
        head = api.get("live/cluster").json["state"]["cluster"]
        session = api.get("session").json["clusters"][0]
        ready = json.loads(Client().get("/readyz").content)
        return [head.get("engine_away_since_at"), session["engine_away_since_at"], ready["engines"][world.cluster.name]]

    tasks.run_round()
    assert told() == [None, None, "ok"]
    engine.here = False
    tasks.run_round()
    since = Cluster.objects.get().engine_away_since
    assert since is not None
    in_head, in_session, ready = told()
    assert in_head == in_session == since.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    assert ready == f"has not answered since {since:%Y-%m-%dT%H:%M:%SZ}"
    tasks.run_round()
    assert Cluster.objects.get().engine_away_since == since
    Cluster.objects.update(engine_away_since=timezone.now() - timedelta(seconds=95))
    settings.EVENKEEL_METRICS_TOKEN = "scrape-me"
    text = Client().get("/metrics", headers={"Authorization": "Bearer scrape-me"}).content.decode()
    assert f'evenkeel_engine_away_seconds{{cluster="{world.cluster.name}"}} 9' in text
