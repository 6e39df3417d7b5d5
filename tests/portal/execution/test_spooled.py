"""Reports that a runner left behind: read by a task of their own, before its exit is recorded, and never in a round."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, cast

import pytest
from celery import current_app
from django.core.cache import cache
from django.utils import timezone

from portal.execution import executors, spool_tasks
from portal.execution import observe as observe_module
from portal.jobs import spooled_runs
from portal.jobs.models import Checkpoint, Hold, Job, JobEvent, MetricPoint
from portal.lifecycle import job_limits
from portal.reporting.notice_limits import MAX_PER_HOUR
from scheduling.executors.base import Executor, ExitInfo, Fact, NodeInfo, Spooled
from scheduling.lifecycle import State
from tests.portal.execution.test_command_slots import Elsewhere
from tests.portal.together import alone
from tests.portal.world import World

pytestmark = pytest.mark.django_db


class Left:
    """An executor whose runs have exited and left reports."""

    single_trust_mode = supports_warm_start = False
    isolation_problem = None

    def __init__(self, world: World) -> None:
        self.world = world
        self.reports: list[Any] = []
        self.dropped, self.reads, self.breaks = 0, 0, False
        self.exit = ExitInfo("done", exit_code=0, step=1000)
        self.begun = threading.Event()
        self.meanwhile: threading.Event | None = None

    def inventory(self) -> Sequence[NodeInfo]:
        return self.world.node_infos()

    def refresh(self) -> bool:
        return False

    def observe(self, known: Sequence[tuple[str, int]], renewed_at: object) -> list[Fact]:
        return [Fact(*launch, "exited", time.time(), self.exit, spooled=True) for launch in known]

    def spooled(self, run_id: str, epoch: int) -> Iterator[Spooled]:
        self.reads += 1
        self.begun.set()
        if self.meanwhile is not None:
            assert self.meanwhile.wait(60)
        if self.breaks:
            raise RecursionError("too deep")
        yield from (Spooled(report) for report in self.reports)
        if self.dropped:
            yield Spooled(None, self.dropped)


@pytest.fixture
def world() -> World:
    cache.clear()
    return World()


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []

    def send(name: str, arguments: Sequence[Any], *_: Any, **__: Any) -> None:
        if name == "evenkeel.take_spooled":
            found.append((name, *arguments))

    monkeypatch.setattr(current_app, "send_task", send)
    return found


@pytest.fixture
def left(world: World, monkeypatch: pytest.MonkeyPatch) -> Left:
    made = Left(world)
    monkeypatch.setattr(executors, "executor_for", lambda cluster: made)
    monkeypatch.setattr(executors, "executor_for", lambda cluster: made)
    return made


def report(seq: int, **more: Any) -> dict[str, Any]:
    now = time.time()
    metrics = [{"step": seq, "at": now, "loss": 1.0}]
    return {"epoch": 1, "seq": seq, "sent_at": now, "step": 10 * seq, "metrics": metrics} | more


def look(world: World, left: Left) -> bool:
    return observe_module.observe(world.cluster, cast("Executor", left))


def training(world: World, **keys: Any) -> Job:
    job = world.submit(**keys)
    world.train(job)
    return job


def take(sent: list[tuple[Any, ...]]) -> None:
    (name, cluster_id, content) = sent.pop()
    assert name == "evenkeel.take_spooled"
    spool_tasks.take_spooled(cluster_id, content)


def notices(job: Job) -> list[str]:
    return list(JobEvent.objects.filter(job=job, kind="notice").order_by("pk").values_list("text", flat=True))


def test_a_round_reads_none_and_a_task_takes_them_in_before_the_exit(world: World, left: Left, sent: list[Any]) -> None:
    job = training(world)
    checkpoint = {"step": 990, "at": time.time(), "bytes": 5}
    left.reports = [report(world.seq + n) for n in (1, 2)] + [report(world.seq + 3, checkpoint=checkpoint)]
    assert look(world, left)
    assert left.reads == 0
    assert world.state(job) is State.RUNNING_PROTECTED
    for _ in range(2):  # the same again: one task is on its way
        look(world, left)
    assert len(sent) == 1
    content = sent[0]
    take(sent)
    assert world.state(job) is State.FINISHED
    assert MetricPoint.objects.filter(run=world.run(job)).count() == 3
    assert Checkpoint.objects.get(run=world.run(job)).step == 990
    assert not Hold.objects.filter(during__upper_inf=True).exists()
    before = list(JobEvent.objects.filter(job=job).values_list("pk", flat=True))
    spool_tasks.take_spooled(*content[1:])  # the message came twice
    assert list(JobEvent.objects.filter(job=job).values_list("pk", flat=True)) == before
    assert MetricPoint.objects.filter(run=world.run(job)).count() == 3
    assert notices(job) == []


def test_notices_that_are_left_behind_have_the_limit_of_those_that_are_sent(
    world: World, left: Left, sent: list[Any]
) -> None:
    job = training(world)
    left.reports = [report(world.seq + n, notices=[f"{n}-{i}" for i in range(60)]) for n in range(1, 6)]
    look(world, left)
    take(sent)
    said = notices(job)
    assert len(said) == MAX_PER_HOUR + 1
    assert said[MAX_PER_HOUR - 1].endswith("2-39")
    assert "more than 100 notices in an hour" in said[MAX_PER_HOUR]


def test_what_is_dropped_is_said_on_the_job(world: World, left: Left, sent: list[Any]) -> None:
    job = training(world)
    stranger = report(world.seq + 1, epoch="none")
    left.reports, left.dropped = [stranger, {"seq": []}, report(world.seq + 2)], 7
    look(world, left)
    take(sent)
    [said] = notices(job)
    assert "9 reports that its runner left behind were not taken in" in said
    assert world.state(job) is State.FINISHED
    assert MetricPoint.objects.filter(run=world.run(job)).count() == 1


def test_the_newest_is_taken_in_when_time_is_over(
    world: World, left: Left, sent: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = training(world)
    left.reports = [report(world.seq + n) for n in range(1, 6)]
    newest = world.seq + 5
    monkeypatch.setattr(spool_tasks, "TAKE_S", -1.0)
    look(world, left)
    take(sent)
    assert list(MetricPoint.objects.filter(run=world.run(job)).values_list("step", flat=True)) == [newest]
    assert "4 reports" in notices(job)[0]


def test_reports_of_one_project_take_no_more_workers_than_it_may_have(
    world: World, left: Left, sent: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    again: list[Any] = []
    monkeypatch.setattr(spool_tasks.take_spooled, "apply_async", lambda arguments, **_: again.append(arguments))
    job = training(world)
    look(world, left)
    with Elsewhere(world.project.pk), Elsewhere(world.project.pk):
        cache.clear()  # however long ago it was sent
        take(sent)
        look(world, left)
    assert (left.reads, sent) == (0, [])  # it is still on its way
    assert world.state(job) is State.RUNNING_PROTECTED
    spool_tasks.take_spooled(*again.pop())
    assert world.state(job) is State.FINISHED


def test_reports_of_another_launch_change_nothing(world: World, left: Left, sent: list[Any]) -> None:
    job = training(world)
    left.reports = [report(world.seq + 1, epoch=7)]
    look(world, left)
    take(sent)
    assert world.state(job) is State.FINISHED
    assert not MetricPoint.objects.exists()


def test_reports_that_cannot_be_read_keep_no_exit(world: World, left: Left, sent: list[Any]) -> None:
    job = training(world)
    left.breaks = True
    look(world, left)
    take(sent)
    assert world.state(job) is State.FINISHED
    assert "could not be read" in notices(job)[0]


def test_a_task_that_is_killed_again_and_again_is_given_up(world: World, left: Left, sent: list[Any]) -> None:
    job = training(world)
    run = world.run(job)
    for _ in range(spooled_runs.MAX_BEGUN):
        look(world, left)
        assert len(sent) == 1
        sent.clear()
        spooled_runs.begin(str(run.pk), 1)  # and no more is heard of it
        cache.delete(spooled_runs._key("pending", run.pk, 1))  # its time is over
    look(world, left)
    assert sent == []
    assert left.reads == 0
    assert world.state(job) is State.FINISHED
    assert len(notices(job)) == 1


def test_no_limit_ends_a_run_whose_reports_are_being_taken_in(world: World, left: Left, sent: list[Any]) -> None:
    """The portal was away longer than the job may train, and the job ended well meanwhile."""
    job = training(world, max_duration=60)
    run = world.run(job)
    type(run).objects.filter(pk=run.pk).update(state_since=timezone.now() - timedelta(hours=5))
    look(world, left)
    job_limits.end_overdue(cluster_id=world.cluster.pk, now=timezone.now())
    assert world.state(job) is State.RUNNING_PROTECTED
    take(sent)
    assert world.state(job) is State.FINISHED


@pytest.mark.django_db(transaction=True)
def test_two_workers_that_take_at_once_take_once(world: World, left: Left, sent: list[Any]) -> None:
    """However long one of them takes, and whatever the cache has forgotten: a failure would count twice as well."""
    job = training(world, retry={"limit": 3, "on": ["user_error"]})
    left.exit = ExitInfo("user_error", exit_code=1, message="It failed.")
    left.reports, left.dropped, left.meanwhile = [report(world.seq + 1)], 7, threading.Event()
    look(world, left)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(alone, lambda: spool_tasks.take_spooled(*sent[0][1:]))
        try:
            assert left.begun.wait(60)
            cache.clear()
            look(world, left)
            assert len(sent) == 2
            pool.submit(alone, lambda: spool_tasks.take_spooled(*sent[1][1:])).result(60)
            assert world.run(job).attempt == 1
        finally:
            left.meanwhile.set()
        first.result(60)
    spool_tasks.take_spooled(*sent[1][1:])  # and once more
    assert (left.reads, world.run(job).attempt, len(notices(job))) == (1, 2, 1)
    assert not spooled_runs.is_pending(world.run(job).pk, 1)
