"""Runners' reports: steps, metrics, readiness, checkpoints. Delivered at least once; repeats change nothing.

Thousands of runs report every few seconds, so reports that arrive at the same time are recorded together: one statement
for all instead of one for each.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from typing import Annotated, Any, Literal
from uuid import UUID

from django.db import OperationalError, connection, transaction
from django.db.models import QuerySet, Value
from django.db.models.functions import Greatest
from evenkeel.web_address import read_url
from pydantic import BaseModel, ConfigDict, Field

from accounts.text import check_line, shown
from portal.core import wake
from portal.core.times import from_posix
from portal.database.rows import update_rows
from portal.jobs import events
from portal.jobs.models import Checkpoint, Command, MetricPoint, Run
from portal.lifecycle.job_limits import time_left_s
from portal.lifecycle.transitions import kept_why, move
from portal.material.checkpoints import note_written
from portal.reporting import activity, resources, throughput
from portal.reporting.metric_limits import NOTICE, MetricBounds, seconds_between
from portal.reporting.notice_limits import within_limit
from scheduling.lifecycle import HOLDING, LIVE, TRAINING, Event, State

logger = logging.getLogger(__name__)
PROTECTION_FACTOR = 3.0
MAX_LINKS = 20
#: Checkpoints of a run that are recorded: twice as many as a program may be asked to keep.
MAX_CHECKPOINTS = 200
#: Samples of resources in one report; runners send at most 120.
MAX_SAMPLES = 500
#: Read with the run, in one query, since each run reports every few seconds.
_READ = ("job__cluster__idle_rule", "activity")
#: Large, and rarely needed here.
_LEFT_OUT = ("job__spec", "job__cluster__policy_memory", "job__cluster__figures", "reason_text", "reason_detail")
_LATEST = 4_102_444_800.0  # 2100: later than any clock with a moderate error


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)


class CheckpointReport(_Part):
    step: int = Field(ge=0, le=10**13)
    at: float = Field(ge=0, le=_LATEST)
    path: str = Field("", max_length=300)
    bytes: int = Field(0, ge=0, le=2**60)
    seconds: float = Field(0.0, ge=0, le=1e7)
    reason: str = Field("interval", max_length=20)


Part = Annotated[float, Field(ge=0, le=1)]


class ResourcesReport(_Part):
    """GPU use of the launch: [POSIX seconds, gpu, gpu_memory, gpu_cores, pcie], newest last; fractions of one device,
    null if unknown."""

    interval_s: float = Field(gt=0, le=86_400)
    source: Literal["nvml", "processes"]
    samples: list[
        tuple[Annotated[float, Field(ge=0, le=_LATEST)], Part | None, Part | None, Part | None, Part | None]
    ] = Field(max_length=MAX_SAMPLES)


class Report(_Part):
    """The body of POST runs/<run>/reports (docs/contracts.md)."""

    epoch: int = Field(ge=0, le=2**31 - 1)
    seq: int = Field(ge=0, le=2**62)
    sent_at: float = Field(ge=0, le=_LATEST)
    phase: str = Field("running", max_length=20)
    step: int | None = Field(None, ge=0, le=10**13)
    ready_at: float | None = Field(None, ge=0, le=_LATEST)
    checkpoint: CheckpointReport | None = None
    metrics: list[dict[str, float | None]] = Field([], max_length=500)
    usage: dict[str, float] = Field({}, max_length=50)
    gpu_utilisation: list[Annotated[float, Field(ge=0, le=1)]] | None = Field(None, max_length=1_024)
    resources: ResourcesReport | None = None
    notices: list[str] = Field([], max_length=100)
    links: dict[Annotated[str, Field(max_length=60)], Annotated[str, Field(max_length=1_000)]] = Field(
        {}, max_length=20
    )
    sdk: bool | None = None
    fetching: str | None = Field(None, max_length=400)
    exit: dict[str, Any] | None = None


class StaleEpoch(Exception):
    """The report belongs to a launch that is over; its runner must checkpoint and stop."""


@dataclass(frozen=True, slots=True)
class Orders:
    """The answer to the runner; limits may have changed since the launch."""

    command: str | None
    total_steps: int
    max_duration_s: float | None  # in training, of this launch


def record_report(*, run_id: UUID | str, report: Report, now: datetime) -> Orders:
    """Record a report. Raises StaleEpoch, StaleRun, Run.DoesNotExist."""
    with transaction.atomic():
        run = _locked().get(pk=run_id)
        if report.epoch != run.epoch:
            raise StaleEpoch(f"the run is at epoch {run.epoch}")
        _take([_Said(run, report)], now)
        return _orders(run)


def record_reports(reports: Mapping[UUID, Report], now: datetime) -> dict[UUID, Orders]:
    """Record reports of different runs in one transaction. Those without an answer must be recorded alone: the run or a
    related row is locked, run or epoch does not exist, or the report is faulty, which must not affect the others."""
    try:
        with transaction.atomic():
            _wait_briefly()
            runs = list(_locked(skip=True).filter(pk__in=reports).order_by("pk"))
            said = [_Said(run, reports[run.pk]) for run in runs if run.epoch == reports[run.pk].epoch]
            _take(said, now)
            return {one.run.pk: _orders(one.run) for one in said}
    except OperationalError as error:  # a lock, or no database
        logger.warning("%d reports are taken in one by one: %s", len(reports), error)
        return {}
    except Exception:
        if len(reports) == 1:
            return {}
        logger.warning("%d reports are taken in in halves", len(reports), exc_info=True)
        halves = (dict(islice(reports.items(), start, None, 2)) for start in (0, 1))
        return {run: orders for half in halves for run, orders in record_reports(half, now).items()}


def _wait_briefly() -> None:
    """Lock timeout of this transaction, so that one long lock does not delay all reports. Less than the second after
    which PostgreSQL looks for deadlocks and might abort another transaction."""
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL lock_timeout = '300ms'")


def _locked(*, skip: bool = False) -> QuerySet[Run]:
    """Other rows may still reference them: keys are not changed."""
    runs = Run.objects.select_for_update(of=("self",), skip_locked=skip, no_key=True)
    return runs.select_related(*_READ).defer(*_LEFT_OUT)


def _orders(run: Run) -> Orders:
    return Orders(_command(run), run.job.total_steps, time_left_s(run))


def _command(run: Run) -> str | None:
    state = State(run.state)
    if state not in HOLDING:
        return Command.Verb.KILL
    return Command.Verb.CHECKPOINT_AND_STOP if state in (State.CHECKPOINTING, State.STOPPING) else None


@dataclass(slots=True)
class _Said:
    run: Run
    report: Report
    #: As in its last report.
    step_before: int = 0
    heard_at: datetime | None = None


def _take(given: Sequence[_Said], now: datetime) -> None:
    """The new parts of the reports: each step for all reports, in the order required within one."""
    live = [one for one in given if State(one.run.state) in LIVE]
    said = [one for one in live if one.report.seq > one.run.last_report_seq]
    if again := [one.run.pk for one in live if one.report.seq <= one.run.last_report_seq]:
        # The answer still renews the lease. A report that waited for the lock may be older.
        Run.objects.filter(pk__in=again).update(last_report_at=Greatest("last_report_at", Value(now)))
    if not said:
        return
    _note_progress(said, now)
    after = _Afterwards()
    transaction.on_commit(after.do, robust=True)
    for one in said:
        if one.report.ready_at is not None and State(one.run.state) is State.LAUNCHING:
            after.wake_in(_ready(one.run, from_posix(one.report.ready_at), now))
        if one.report.checkpoint is not None:
            _checkpoint(one.run, one.report.checkpoint, now)
            after.written[one.run.job.project_id] += one.report.checkpoint.bytes
    measurable = _metrics(said, now)
    training = [one for one in said if State(one.run.state) in TRAINING]
    due = [one.run for one in training if throughput.is_due(one.run, one.heard_at, now)]
    throughput.update([run for run in due if run.pk in measurable], now)
    _resources(said, now)
    for one in said:
        job = one.run.job
        for notice in within_limit(one.run.pk, one.report.notices):
            events.append(kind="notice", job=job, run=one.run, at=now, text=f"#{job.number}: {shown(notice, 400)}")
    activity.note_activities([(one.run, _heard(one)) for one in training], now)
    if any(one.report.exit is not None for one in said):
        after.wake_in(0.2)  # the processes are exiting; the executor's observation ends the occupancy


@dataclass(slots=True)
class _Afterwards:
    """Work after the transaction, for all of its reports."""

    waits_s: set[float] = field(default_factory=set)
    #: By project: bytes of checkpoints.
    written: Counter[int] = field(default_factory=Counter)

    def wake_in(self, seconds: float) -> None:
        """In fifths of a second."""
        self.waits_s.add(math.ceil(seconds * 5) / 5)

    def do(self) -> None:
        for seconds in sorted(self.waits_s):
            wake.schedule_round(seconds)
        for project_id, size_bytes in self.written.items():
            note_written(project_id, size_bytes)
        wake.publish_steps()


def _note_progress(said: Sequence[_Said], now: datetime) -> None:
    rows: dict[UUID, dict[str, Any]] = {}
    for one in said:
        run, report = one.run, one.report
        heard_at = max(now, run.last_report_at or now)
        columns: dict[str, Any] = {"last_report_at": heard_at, "last_report_seq": report.seq}
        columns["fetching"] = shown(report.fetching or "", 200)
        columns["uses_sdk"] = run.uses_sdk if report.sdk is None else report.sdk
        links = run.links | {shown(name): url for name, url in report.links.items() if shown(name) and _is_address(url)}
        # A launch that begins later may not repeat all of them.
        columns["links"] = links if len(links) <= MAX_LINKS else run.links
        columns["step"] = run.step
        if report.step is not None:
            columns["step"] = max(run.checkpoint_step, min(report.step, run.job.total_steps))
        one.step_before, one.heard_at = run.step, run.last_report_at
        rows[run.pk] = columns
        for name, value in columns.items():
            setattr(run, name, value)
    update_rows(Run, rows)


def _heard(one: _Said) -> activity.Heard:
    return activity.Heard(from_posix(one.report.sent_at), one.run.step != one.step_before, one.report.gpu_utilisation)


def _is_address(url: str) -> bool:
    """Programs may report anything, and pages make a link of it."""
    try:
        check_line(url)
        read_url(url)
    except ValueError:
        return False
    return True


def _store(run: Run, columns: Mapping[str, Any]) -> None:
    Run.objects.filter(pk=run.pk).update(**columns)
    for name, value in columns.items():
        setattr(run, name, value)


def _ready(run: Run, ready_at: datetime, now: datetime) -> float:
    """The first step can run: protected for 3 x this launch (spec, "Application states"). Returns the remaining seconds
    of it."""
    ready_at = min(max(ready_at, run.state_since), now)
    launch_s = (ready_at - run.state_since).total_seconds()
    factor = float(run.job.cluster.policy_parameters.get("protection_factor", PROTECTION_FACTOR))
    protected_until = ready_at + timedelta(seconds=factor * launch_s)
    move(
        run,
        Event.FIRST_STEP_READY,
        at=ready_at,
        text=f"#{run.job.number} {run.job.name} trains after {launch_s:.1f} s of launching",
        why=kept_why(run),
        detail={"launch_s": launch_s, "protected_until": protected_until.isoformat()},
        ready_at=ready_at,
        launch_s=launch_s,
        protected_until=protected_until,
        has_trained=True,
    )
    return max(0.0, (protected_until - now).total_seconds()) + 0.05


def _checkpoint(run: Run, report: CheckpointReport, now: datetime) -> None:
    if report.step > run.job.total_steps:  # invented by a program, or written before the number of steps was reduced
        logger.info("run %s: a checkpoint at step %s of %s is left out", run.pk, report.step, run.job.total_steps)
        return
    at = from_posix(report.at)
    _, new = Checkpoint.objects.update_or_create(
        run=run,
        step=report.step,
        defaults={"at": at, "path": shown(report.path, 300), "size_bytes": report.bytes, "duration_s": report.seconds},
    )
    if new:
        surplus = Checkpoint.objects.filter(run=run).order_by("-step").values_list("pk", flat=True)[MAX_CHECKPOINTS:]
        Checkpoint.objects.filter(pk__in=list(surplus)).delete()
    if report.step >= run.checkpoint_step:
        _store(
            run,
            {"checkpoint_step": report.step, "step": max(run.step, report.step), "checkpoint_s": report.seconds},
        )
    if report.reason == "request" and State(run.state) is State.CHECKPOINTING:
        text = f"#{run.job.number} {run.job.name} wrote a checkpoint at step {report.step:,}"
        detail = {"step": report.step, "seconds": report.seconds, "bytes": report.bytes}
        move(run, Event.CHECKPOINTED, at=now, text=text, detail=detail, why=kept_why(run))


def _resources(said: Sequence[_Said], now: datetime) -> None:
    noted = []
    for one in said:
        if (of := one.report.resources) is not None:
            rows: list[list[float | None]] = [list(sample) for sample in of.samples]
            noted.append((one.run, resources.Said(of.interval_s, of.source, rows)))
    if noted:
        resources.note_resources(noted, now)
    for one in said:
        if one.report.exit is not None:
            resources.close_series(one.run, now)


def _metrics(said: Sequence[_Said], now: datetime) -> set[UUID]:
    """Whether there were any."""
    points = []
    for one in said:
        bounds = MetricBounds(one.run.metric_names, seconds_between(one.heard_at, now))
        points += list(_points(one, bounds))
        _note_bounds(one.run, bounds, now)
    if points:
        MetricPoint.objects.bulk_create(points, ignore_conflicts=True)
    return {point.run_id for point in points}


def _points(one: _Said, bounds: MetricBounds) -> Iterator[MetricPoint]:
    for metric, values in bounds.keep([metric for metric in one.report.metrics if _has_place(metric)]):
        step, at = int(metric["step"] or 0), from_posix(metric["at"] or 0.0)
        yield MetricPoint(run=one.run, epoch=one.run.epoch, step=step, at=at, values=values)


def _has_place(metric: Mapping[str, float | None]) -> bool:
    """Whether it has a step and a time."""
    step, at = metric.get("step"), metric.get("at")
    return step is not None and 0 <= step <= 10**13 and at is not None and 0 < at <= _LATEST


def _note_bounds(run: Run, bounds: MetricBounds, now: datetime) -> None:
    changed: dict[str, Any] = {}
    if bounds.new_names:
        changed["metric_names"] = [*run.metric_names, *bounds.new_names]
    if bounds.dropped and not run.metrics_dropped:
        changed["metrics_dropped"] = True
        events.append(kind="notice", job=run.job, run=run, at=now, text=f"#{run.job.number}: {NOTICE}")
    if changed:
        _store(run, changed)
