"""A runner's report: steps, metrics, readiness, checkpoints. At least once; repeats change nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit
from uuid import UUID

from django.db import transaction
from pydantic import BaseModel, ConfigDict, Field

from portal.jobs import events, wakeups
from portal.jobs.launching import time_left_s
from portal.jobs.models import Checkpoint, Command, MetricPoint, Run
from portal.jobs.services import activity, measurement, resources
from portal.jobs.services.moves import kept_why, move
from portal.jobs.services.times import from_posix
from portal.material.checkpoints import note_written
from scheduling.lifecycle import LIVE, TRAINING, Event, State

PROTECTION_FACTOR = 3.0
MAX_LINKS = 20
#: Of resources in one report; runners send 120 at most.
MAX_SAMPLES = 500
#: Read with the run, in one query: whoever reports does so every few seconds.
_READ = ("job__cluster__idle_rule", "activity")
#: Large, and seldom needed here.
_LEFT_OUT = ("job__spec", "job__cluster__policy_memory", "job__cluster__figures", "reason_text", "reason_detail")
_LATEST = 4_102_444_800.0  # 2100: later than any clock that is only somewhat wrong


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
    """What the launch used of its GPUs: [POSIX seconds, gpu, gpu_memory, gpu_cores, pcie], newest last; parts of one
    device, null where they are not known."""

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
    """The report is of a launch that is over; its runner must checkpoint and stop."""


@dataclass(frozen=True, slots=True)
class Orders:
    """What the runner is told in return; limits may have been changed since the launch."""

    command: str | None
    total_steps: int
    max_duration_s: float | None  # in training, of this launch


def record_report(*, run_id: UUID | str, report: Report, now: datetime) -> Orders:
    """Take a report in. Raises StaleEpoch, Run.DoesNotExist."""
    with transaction.atomic():
        run = Run.objects.select_for_update(of=("self",)).select_related(*_READ).defer(*_LEFT_OUT).get(pk=run_id)
        if report.epoch != run.epoch:
            raise StaleEpoch(f"the run is at epoch {run.epoch}")
        if report.seq > run.last_report_seq and State(run.state) in LIVE:
            _take(run, report, now)
        return Orders(_command(run), run.job.total_steps, time_left_s(run))


def _command(run: Run) -> str | None:
    state = State(run.state)
    if state not in LIVE:
        return Command.Verb.KILL
    return Command.Verb.CHECKPOINT_AND_STOP if state in (State.CHECKPOINTING, State.STOPPING) else None


def _take(run: Run, report: Report, now: datetime) -> None:
    columns: dict[str, Any] = {"last_report_at": now, "last_report_seq": report.seq}
    columns["fetching"] = (report.fetching or "")[:200]
    if report.sdk is not None:
        columns["uses_sdk"] = report.sdk
    links = run.links | {name: url for name, url in report.links.items() if _is_address(url)}
    if links != run.links and len(links) <= MAX_LINKS:  # a launch that begins later may not say all of them again
        columns["links"] = links
    before, heard_at = run.step, run.last_report_at
    if report.step is not None:
        columns["step"] = max(run.checkpoint_step, min(report.step, run.job.total_steps))
    _store(run, columns)
    if report.ready_at is not None and State(run.state) is State.LAUNCHING:
        _ready(run, from_posix(report.ready_at), now)
    if report.checkpoint is not None:
        _checkpoint(run, report.checkpoint, now)
    measurable = _metrics(run, report)
    if measurable and State(run.state) in TRAINING and measurement.is_due(run, heard_at, now):
        measurement.update(run, now)
    _resources(run, report, now)
    for notice in report.notices:
        events.append(kind="notice", job=run.job, run=run, at=now, text=f"#{run.job.number}: {notice[:400]}")
    if State(run.state) in TRAINING:
        heard = activity.Heard(from_posix(report.sent_at), run.step != before, report.gpu_utilisation)
        activity.note_activity(run, heard, now)
    if report.exit is not None:
        # The processes are on their way out; the executor's word on that ends the holds.
        transaction.on_commit(lambda: wakeups.wake(0.2))
    transaction.on_commit(wakeups.publish_steps)


def _is_address(url: str) -> bool:
    """Programs say what they like, and pages make it something to click on."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)


def _store(run: Run, columns: Mapping[str, Any]) -> None:
    Run.objects.filter(pk=run.pk).update(**columns)
    for name, value in columns.items():
        setattr(run, name, value)


def _ready(run: Run, ready_at: datetime, now: datetime) -> None:
    """The first step can run: protected for 3 x this launch (spec, "Application states")."""
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
    wait_s = max(0.0, (protected_until - now).total_seconds())
    transaction.on_commit(lambda: wakeups.wake(wait_s + 0.05))


def _checkpoint(run: Run, report: CheckpointReport, now: datetime) -> None:
    at = from_posix(report.at)
    Checkpoint.objects.update_or_create(
        run=run,
        step=report.step,
        defaults={"at": at, "path": report.path, "size_bytes": report.bytes, "duration_s": report.seconds},
    )
    transaction.on_commit(lambda: note_written(run.job.project_id, report.bytes))
    if report.step >= run.checkpoint_step:
        _store(
            run,
            {"checkpoint_step": report.step, "step": max(run.step, report.step), "checkpoint_s": report.seconds},
        )
    if report.reason == "request" and State(run.state) is State.CHECKPOINTING:
        text = f"#{run.job.number} {run.job.name} wrote a checkpoint at step {report.step:,}"
        detail = {"step": report.step, "seconds": report.seconds, "bytes": report.bytes}
        move(run, Event.CHECKPOINTED, at=now, text=text, detail=detail, why=kept_why(run))


def _resources(run: Run, report: Report, now: datetime) -> None:
    said = report.resources
    if said is not None:
        rows: list[list[float | None]] = [list(sample) for sample in said.samples]
        resources.note_resources(run, resources.Said(said.interval_s, said.source, rows), now)
    if report.exit is not None:
        resources.close_series(run, now)


def _metrics(run: Run, report: Report) -> bool:
    """Whether there were any."""
    points = []
    for metric in report.metrics:
        values = {k[:60]: v for k, v in metric.items() if k not in ("step", "at") and v is not None}
        if metric.get("step") is not None and metric.get("at"):
            if not (0 <= (metric["step"] or 0) <= 10**13 and 0 <= (metric["at"] or 0) <= _LATEST):
                continue
            step, at = int(metric["step"] or 0), from_posix(metric["at"] or 0.0)
            points.append(MetricPoint(run=run, epoch=run.epoch, step=step, at=at, values=values))
    if points:
        MetricPoint.objects.bulk_create(points, ignore_conflicts=True)
    return bool(points)
