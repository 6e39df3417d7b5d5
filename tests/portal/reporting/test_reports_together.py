"""Reports that come at the same time are taken in together, each as if it had come alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime, timedelta
from threading import Event
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, transaction
from django.db.models import QuerySet
from django.utils import timezone

from portal.jobs.models import Hold, Job, JobEvent, MetricPoint, ResourceSeries, Run, RunActivity, ThroughputSample
from portal.lifecycle.allocations import ending_at
from portal.reporting import report_batches
from portal.reporting.reports import Orders, Report, StaleEpoch, record_report, record_reports
from portal.reporting.timeouts import renewals
from scheduling.lifecycle import State
from tests.portal.api_calls import Api
from tests.portal.world import World

pytestmark = pytest.mark.django_db
MANY = {"a": 8}
BEGAN = time.time()


def report(seq: int, step: int = 0, **more: Any) -> Report:
    now = time.time()
    content = {
        "epoch": 1,
        "seq": seq,
        "sent_at": now,
        "ready_at": now - 60,
        "step": step,
        "metrics": [{"step": step, "at": BEGAN + seq, "loss": 1.0}],
        "gpu_utilisation": [0.5],
        "resources": {"interval_s": 5.0, "source": "nvml", "samples": [[now, 0.5, 0.4, None, None]]},
    }
    return Report.model_validate(content | more)


def launched(world: World, count: int) -> list[Run]:
    jobs = [world.submit(gpus=1) for _ in range(count)]
    world.round()
    return [world.run(job) for job in jobs]


def test_what_is_said_together_is_what_is_said_alone() -> None:
    world = World(MANY)
    runs = launched(world, 4)
    for seq in range(1, 7):
        now = timezone.now()
        for run in runs[:2]:
            record_report(run_id=run.pk, report=report(seq, 10 * seq), now=now)
        assert record_reports({run.pk: report(seq, 10 * seq) for run in runs[2:]}, now).keys() == {
            runs[2].pk,
            runs[3].pk,
        }

    def told(run: Run) -> list[Any]:
        run.refresh_from_db()
        mine = {"run": run, "epoch": 1}
        series, activity = ResourceSeries.objects.get(**mine), RunActivity.objects.get(**mine)
        return [
            (run.state, run.step, run.last_report_seq, round(run.steps_per_s or 0)),
            list(MetricPoint.objects.filter(**mine).values_list("step", "values")),
            (len(series.tail), series.gpus, activity.utilisation, activity.gpu_hundredths),
            list(ThroughputSample.objects.filter(**mine).values_list("samples", "count")),
            list(JobEvent.objects.filter(run=run).order_by("pk").values_list("kind", "to_state")),
        ]

    alone, also_alone, along, also_along = map(told, runs)
    assert alone == also_alone == along == also_along
    assert alone[0][:3] == (State.RUNNING_PROTECTED, 60, 6)
    assert alone[3] == [(4, 1)]


def test_a_lease_is_renewed_by_each_report_of_a_launch_that_trains(django_assert_num_queries: Any) -> None:
    world = World(MANY)
    first, second, silent = launched(world, 3)
    cluster_id, began = first.job.cluster_id, timezone.now()

    def renewed_s() -> dict[str, int]:
        with django_assert_num_queries(1):
            found = renewals(cluster_id)
        return {run: round(at - began.timestamp()) for (run, epoch), at in found.items() if epoch == 1}

    for run in (first, second):
        record_report(run_id=run.pk, report=report(1, ready_at=None), now=began)
    assert renewed_s() == {}, "what a launch fetches may take longer than any lease"
    for run in (first, second):
        record_report(run_id=run.pk, report=report(2), now=began)
    later = began + timedelta(seconds=20)
    record_report(run_id=first.pk, report=report(2), now=later)  # it did not hear our answer
    assert renewed_s() == {str(first.pk): 20, str(second.pk): 0}
    assert str(silent.pk) not in renewed_s()
    record_report(run_id=first.pk, report=report(2), now=began)  # it waited longer for the lock
    Run.objects.filter(pk=first.pk).update(state=State.FAILED)
    assert renewed_s() == {str(first.pk): 20, str(second.pk): 0}, "its processes may still be there"
    Hold.objects.filter(run=first).update(during=ending_at(later))
    Run.objects.filter(pk=second.pk).update(epoch=2, ready_at=None)
    assert renewed_s() == {}


@pytest.mark.parametrize(
    ("state", "command"),
    [
        (State.RUNNING, None),
        (State.STOPPING, "checkpoint_and_stop"),
        (State.STANDBY, "kill"),
        (State.WAITING_FOR_RESOURCE, "kill"),
        (State.FAILED, "kill"),
    ],
)
def test_what_runs_on_though_its_run_holds_nothing_is_told_to_end(state: State, command: str | None) -> None:
    world = World(MANY)
    [run] = launched(world, 1)
    Run.objects.filter(pk=run.pk).update(state=state)
    assert record_report(run_id=run.pk, report=report(1, ready_at=None), now=timezone.now()).command == command


def test_a_report_more_costs_no_statement_more(django_assert_max_num_queries: Any) -> None:
    world = World(MANY)
    runs = launched(world, 8)
    for seq in (1, 2, 3, 4, 5):
        for run in runs:
            record_report(run_id=run.pk, report=report(seq, 10 * seq), now=timezone.now())
    with django_assert_max_num_queries(20) as few:
        record_reports({run.pk: report(6, 60) for run in runs[:2]}, timezone.now())
    with django_assert_max_num_queries(20) as many:
        record_reports({run.pk: report(6, 60) for run in runs[2:]}, timezone.now())
    assert len(few) == len(many)


def test_what_cannot_be_stored_harms_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    first, *others = launched(World(MANY), 4)
    monkeypatch.setattr("portal.reporting.reports.shown", lambda text, most=0: text)
    sent = [(first.pk, report(1, 5, notices=["nul \0"])), *((run.pk, report(1, 5)) for run in others)]
    bad, *good = report_batches.record_batch(sent)
    assert isinstance(bad, report_batches.NotTaken)
    assert all(isinstance(answer, Orders) for answer in good)
    assert set(MetricPoint.objects.values_list("run", "step")) == {(run.pk, 5) for run in others}
    assert all(isinstance(answer, Orders) for answer in report_batches.record_batch(sent[1:]))
    first.refresh_from_db()
    assert (first.step, first.last_report_seq) == (0, -1)


def test_each_gets_its_own_answer() -> None:
    world = World(MANY)
    known, stale = launched(world, 2)
    nobody = UUID(int=0)
    Api(world.user).post(f"jobs/{(ended := world.submit()).number}/cancel")
    sent = [
        (nobody, report(1)), (known.pk, report(1, 5)), (stale.pk, report(1, epoch=2)), (known.pk, report(2, 7)),
        (world.run(ended).pk, report(1, epoch=0)),
    ]  # fmt: skip
    missing, first, of_old, again, over = report_batches.record_batch(sent)
    assert isinstance(missing, Run.DoesNotExist)
    assert isinstance(of_old, StaleEpoch)
    assert isinstance(first, Orders)
    assert isinstance(again, Orders)
    assert (first.command, again.command) == (None, None)
    assert isinstance(over, Orders)
    assert over.command == "kill"
    known.refresh_from_db()
    assert (known.step, known.last_report_seq) == (7, 2)


def test_who_comes_meanwhile_is_taken_in_one_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """While one is in the database the others gather; there is an end to how many go together."""
    calls: list[list[UUID]] = []
    begun, go_on = Event(), Event()

    def record(reports: Mapping[UUID, Report], now: datetime) -> dict[UUID, Orders]:
        calls.append(list(reports))
        begun.set()
        go_on.wait(10)
        return {run: Orders(None, run.int, None) for run in reports}

    monkeypatch.setattr(report_batches, "record_reports", record)
    monkeypatch.setattr(report_batches, "MOST", 5)
    runs = [UUID(int=number) for number in range(1, 15)]
    with ThreadPoolExecutor(16) as pool:
        answers = [pool.submit(report_batches.record_batch, [(runs[0], report(1))])]
        assert begun.wait(10)
        answers += [
            pool.submit(report_batches.record_batch, [(run, report(1)) for run in runs[n : n + 2]]) for n in (1, 3, 5)
        ]
        answers += [pool.submit(report_batches.record_batch, [(run, report(1))]) for run in (runs[1], *runs[7:])]
        _until(lambda: len(report_batches._queue.waiting) == 12)
        go_on.set()
        said = [[orders.total_steps for orders in answer.result(10)] for answer in answers]  # type: ignore[union-attr]
    assert said == [[1], [2, 3], [4, 5], [6, 7], [2], *([number] for number in range(8, 15))]
    assert calls[0] == [runs[0]]
    assert all(len(call) <= 5 for call in calls)
    assert len(calls) <= 6
    assert sorted(run.int for call in calls for run in call) == [1, 2, 2, *range(3, 15)]


def _until(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.01)


@contextmanager
def held(rows: QuerySet[Any]) -> Iterator[None]:
    """By somebody else."""
    locked, over = Event(), Event()

    def hold() -> None:
        try:
            with transaction.atomic():
                assert list(rows.select_for_update())
                locked.set()
                over.wait(10)
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as pool:
        holding = pool.submit(hold)
        try:
            assert locked.wait(10)
            yield
        finally:
            over.set()
        holding.result(10)


@pytest.mark.django_db(transaction=True)
def test_nobody_waits_for_a_run_that_somebody_else_has() -> None:
    busy, free = launched(World(MANY), 2)
    with held(Run.objects.filter(pk=busy.pk)):
        taken = record_reports({busy.pk: report(1, 3), free.pk: report(1, 3)}, timezone.now())
    assert taken.keys() == {free.pk}
    (answer,) = report_batches.record_batch([(busy.pk, report(1, 3))])
    assert isinstance(answer, Orders)
    assert Job.objects.filter(run__step=3).count() == 2


@pytest.mark.django_db(transaction=True)
def test_nor_for_long_for_anything_else() -> None:
    runs = launched(World(MANY), 2)
    assert len(report_batches.record_batch([(run.pk, report(1, 3)) for run in runs])) == 2
    with held(RunActivity.objects.filter(pk=runs[0].pk)):
        assert record_reports({run.pk: report(2, 6) for run in runs}, timezone.now()) == {}
        assert record_reports({runs[1].pk: report(2, 6)}, timezone.now()).keys() == {runs[1].pk}
    (answer,) = report_batches.record_batch([(runs[0].pk, report(2, 6))])
    assert isinstance(answer, Orders)
    assert Job.objects.filter(run__step=6).count() == 2
