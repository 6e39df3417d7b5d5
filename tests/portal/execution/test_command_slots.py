"""Commands of one project keep no other's waiting, and what outlived a run is said."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from celery import current_app
from django.conf import settings
from django.db import connection
from django.utils import timezone
from evenkeel.runner.grace import KILL_AFTER_S

from portal.config.layout import Layout
from portal.core.locks import PROJECT_SLOTS, project_slot
from portal.execution import commands, executors
from portal.jobs.models import Command, JobEvent
from portal.operations.management.commands import doctor
from portal.operations.management.commands.doctor import queue_findings
from portal.reporting import observation
from portal.supervisor import control_plane
from scheduling.executors.base import ExitInfo, Fact
from scheduling.lifecycle import State
from tests.portal.world import World

pytestmark = pytest.mark.django_db


@pytest.fixture
def world() -> World:
    return World()


class Elsewhere(threading.Thread):
    """Another worker, with a connection of its own, which holds a slot of a project."""

    def __init__(self, project_id: int, *, kill: bool = False) -> None:
        super().__init__(daemon=True)
        self._project_id, self._kill = project_id, kill
        self.mine: bool | None = None
        self._ready, self._leave = threading.Event(), threading.Event()

    def run(self) -> None:
        with project_slot(self._project_id, kill=self._kill) as self.mine:
            self._ready.set()
            self._leave.wait(60)
        connection.close()

    def __enter__(self) -> Elsewhere:
        self.start()
        assert self._ready.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self._leave.set()
        self.join(60)


def launch_of(world: World) -> Command:
    job = world.submit()
    world.round()
    return Command.objects.get(run=world.run(job), closed_at=None)


def test_a_command_over_its_projects_bound_is_put_off_and_others_are_sent(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []
    monkeypatch.setattr(commands, "_claim_and_send", lambda command, cluster: sent.append(command.pk))
    command = launch_of(world)
    with Elsewhere(world.project.pk) as first, Elsewhere(world.project.pk) as second:
        assert (first.mine, second.mine, PROJECT_SLOTS) == (True, True, 2)
        before = timezone.now()
        commands.send_command(command.pk)
        command.refresh_from_db()
        assert sent == []
        assert command.attempts == 0
        assert command.next_attempt_at > before
        with Elsewhere(world.project.pk + 1) as other, Elsewhere(world.project.pk, kill=True) as kill:
            assert (other.mine, kill.mine) == (True, True)
    Command.objects.update(next_attempt_at=before)
    commands.send_command(command.pk)
    assert sent == [command.pk]


def test_kills_have_slots_of_their_own(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []
    monkeypatch.setattr(commands, "_claim_and_send", lambda command, cluster: sent.append(command.pk))
    command = launch_of(world)
    Command.objects.filter(pk=command.pk).update(verb=Command.Verb.KILL)
    with Elsewhere(world.project.pk), Elsewhere(world.project.pk):
        commands.send_command(command.pk)
    assert sent == [command.pk]


@pytest.mark.parametrize(
    ("verb", "at_most_s"), [(Command.Verb.KILL, KILL_AFTER_S), (Command.Verb.CHECKPOINT_AND_STOP, 60.0)]
)
def test_a_kill_comes_again_when_the_programs_grace_is_over(
    world: World, monkeypatch: pytest.MonkeyPatch, verb: Command.Verb, at_most_s: float
) -> None:
    monkeypatch.setattr(commands, "_send", lambda command, executor: None)
    monkeypatch.setattr(executors, "executor_for", lambda cluster: None)
    command = launch_of(world)
    Command.objects.filter(pk=command.pk).update(verb=verb, attempts=9)
    commands.send_command(command.pk)
    command.refresh_from_db()
    wait = command.next_attempt_at - timezone.now()
    assert timedelta(seconds=at_most_s / 2) < wait <= timedelta(seconds=at_most_s)


def test_every_queue_has_a_worker_and_rounds_share_none_with_commands() -> None:
    children = control_plane.ControlPlane(Layout(settings.EVENKEEL_DATA))._children()
    taken = {word for child in children for word in _queues(child._command)}
    wanted = {"celery", *(route["queue"] for route in settings.CELERY_TASK_ROUTES.values())}
    assert taken == wanted
    together = next(_queues(child._command) for child in children if "rounds" in _queues(child._command))
    assert "commands" not in together


def _queues(command: list[str]) -> list[str]:
    return command[command.index("-Q") + 1].split(",") if "-Q" in command else []


@pytest.mark.parametrize(
    ("answers", "ok"),
    [
        (
            {"a": [{"name": name} for name in ("rounds", "live", "celery", "forecasts", "lab", "shadow", "commands")]},
            True,
        ),
        (
            {"a": [{"name": name} for name in ("rounds", "dispatch", "live", "celery", "forecasts", "lab", "shadow")]},
            False,
        ),
    ],
)
def test_a_queue_without_a_worker_is_to_be_put_right(
    monkeypatch: pytest.MonkeyPatch, answers: dict[str, Any], ok: bool
) -> None:
    class Inspector:
        def active_queues(self) -> dict[str, Any]:
            return answers

    monkeypatch.setattr(current_app.control, "inspect", lambda *_, **__: Inspector())
    monkeypatch.setattr(doctor, "WORKERS_START_S", 0)
    [finding] = queue_findings()
    assert (finding.ok, "commands" in finding.seen) == (ok, not ok)


def test_workers_that_still_start_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[set[str] | None] = [{"lab"}, {"lab"}, set()]
    monkeypatch.setattr(doctor, "queues_without_worker", lambda: answers.pop(0))
    [finding] = queue_findings()
    assert (finding.ok, answers) == (True, [])


def test_what_outlived_a_run_is_a_notice_of_its_job(world: World) -> None:
    job = world.submit()
    world.train(job)
    run = world.run(job)
    text = "2 processes outlived the run and were ended: 2 × sleep."
    fact = Fact(str(run.pk), run.epoch, "exited", timezone.now().timestamp(), ExitInfo("done"), strays=text)
    for _ in range(2):  # a fact may come twice
        observation.record_fact(fact)
    assert JobEvent.objects.get(kind="notice", job=job).text == f"#{job.number}: {text}"


@pytest.mark.parametrize("alleged", [True, False])
def test_a_job_that_may_have_killed_its_runner_is_not_tried_beyond_its_limit(world: World, alleged: bool) -> None:
    job = world.submit(retry={"limit": 0})
    world.train(job)
    world.processes_gone(world.run(job), ExitInfo("runner_lost", alleged=alleged))
    assert (world.state(job) is State.FAILED) is alleged
