"""Throughput measured while a run trains: one sample row per launch, the median after warm-up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any, NamedTuple
from uuid import UUID

from django.db import connection

from portal.core.times import from_posix
from portal.database.rows import update_rows
from portal.jobfile.resources import WHOLE_PERCENT
from portal.jobs import events
from portal.jobs.models import Hold, JobEvent, PairSample, Run, ThroughputSample
from portal.throughput.profiles import of_share, own_workload, policy_workload, workload_of
from scheduling.lifecycle import TRAINING, State
from scheduling.throughput.curves import Number, Sample, measure

#: Below this fraction of its pace an emulated run counts as too slow for it.
PACE_KEPT = 0.9
_WINDOW = 40
#: Until this much training every report is measured, then one in each minute.
_AT_FIRST_S, _EVERY_S = 300.0, 60.0
_MEASURED = (
    "workload", "batch_size", "accelerator_type", "count", "steps_per_s", "samples", "emulated", "measured_at",
)  # fmt: skip
_POINTS = """
    SELECT mine.run, (SELECT min(step) FROM jobs_metricpoint WHERE run_id = mine.run AND epoch = mine.epoch),
           newest.step, newest.at
    FROM unnest(%s::uuid[], %s::bigint[], %s::bigint[]) AS mine (run, epoch, most),
         LATERAL (SELECT step, at FROM jobs_metricpoint WHERE run_id = mine.run AND epoch = mine.epoch
                    AND step <= mine.most ORDER BY step DESC LIMIT %s) AS newest"""


def is_due(run: Run, heard_at: datetime | None, now: datetime) -> bool:
    """Whether a report must be measured; `heard_at`: when the previous one came. With neighbours on the GPU, who
    change, each is."""
    if run.job.gpu_share_percent < WHOLE_PERCENT:
        return True
    if heard_at is None or run.ready_at is None or (now - run.ready_at).total_seconds() < _AT_FIRST_S:
        return True
    return now.timestamp() // _EVERY_S != heard_at.timestamp() // _EVERY_S


@dataclass(frozen=True, slots=True)
class _Course:
    """Of one launch: its first step, and the newest reported ones, (step, when), oldest first."""

    first_step: int
    newest: list[tuple[int, datetime]]


def update(runs: Sequence[Run], now: datetime) -> None:
    """Update each run's steps/s and its sample row with the newest reports of these launches."""
    if not runs:
        return
    courses, gpus = _courses(runs), _held(runs)
    paces: dict[UUID, dict[str, Any]] = {}
    rows = []
    for run in runs:
        course, held = courses.get(run.pk), gpus.get(run.pk)
        if not course or not held:
            continue
        samples = _samples(run, course, held[0].accelerator_type, len(held))
        latest = samples[-3:]
        now_steps_per_s = sum(s.steps for s in latest) / sum(s.seconds for s in latest) if latest else None
        paces[run.pk] = {"steps_per_s": now_steps_per_s or run.steps_per_s}
        measured = next(iter(measure(samples, warm_up_steps=3).values()), None)
        if measured:
            _mark_pace(run, measured, now)
            rows.append(_sample_row(run, measured, held, max(at for _, at in course.newest)))
        if run.job.gpu_share_percent < WHOLE_PERCENT:
            _note_pair(run, samples, held[0])
    update_rows(Run, paces)
    key = ["run", "epoch"]
    ThroughputSample.objects.bulk_create(rows, update_conflicts=True, unique_fields=key, update_fields=_MEASURED)


def _courses(runs: Sequence[Run]) -> dict[UUID, _Course]:
    """By the index over steps: a launch may have many thousands of points."""
    found: dict[UUID, _Course] = {}
    with connection.cursor() as cursor:
        mine = zip(*((str(run.pk), run.epoch, run.job.total_steps) for run in runs), strict=True)
        cursor.execute(_POINTS, [*map(list, mine), _WINDOW])
        for run_id, first_step, step, at in cursor.fetchall():
            found.setdefault(run_id, _Course(first_step, [])).newest.append((step, at))
    for course in found.values():
        course.newest.sort()
    return found


class _Held(NamedTuple):
    accelerator_id: int
    accelerator_type: str


def _held(runs: Sequence[Run]) -> dict[UUID, list[_Held]]:
    """The GPUs of each run."""
    holds = Hold.objects.filter(run__in=runs, during__upper_inf=True).order_by("accelerator")
    found: dict[UUID, list[_Held]] = defaultdict(list)
    for run_id, gpu, kind in holds.values_list("run_id", "accelerator_id", "accelerator__node__accelerator_type"):
        found[run_id].append(_Held(gpu, kind))
    return found


def _note_pair(run: Run, samples: list[Sample], gpu: _Held) -> None:
    """Its throughput while exactly one other job trains on the same GPU."""
    held = Hold.objects.filter(accelerator=gpu.accelerator_id, during__upper_inf=True).exclude(run=run)
    others = list(held.select_related("run__job"))
    if len(others) != 1 or State(others[0].run.state) not in TRAINING:
        return
    beside = others[0].run
    since = _together_since(run, beside, gpu)
    together = [one for one in samples if one.at - one.seconds >= since]
    measured = next(iter(measure(together, warm_up_steps=3).values()), None)
    if measured is None:
        return
    row = {
        "workload": policy_workload(run.job),
        "share_percent": run.job.gpu_share_percent,
        "beside_workload": policy_workload(beside.job),
        "beside_share_percent": others[0].share_percent,
        "accelerator_type": gpu.accelerator_type,
        "steps_per_s": measured.steps_per_s,
        "samples": measured.samples,
        "emulated": run.emulated,
        "measured_at": from_posix(together[-1].at),
    }
    PairSample.objects.update_or_create(run=run, epoch=run.epoch, beside=beside, defaults=row)


def _together_since(run: Run, beside: Run, gpu: _Held) -> float:
    """Since when both train with no other job on the GPU."""
    left = Hold.objects.filter(accelerator=gpu.accelerator_id, during__upper_inf=False).order_by("-during__endswith")
    ends = [hold.during.upper for hold in left[:1]]
    times = [at for at in (run.ready_at, beside.ready_at, *ends) if at is not None]
    return max(times).timestamp()


def _samples(run: Run, course: _Course, accelerator_type: str, count: int) -> list[Sample]:
    """From one report to the next."""
    model = _workload(run)
    return [
        Sample(
            model=model,
            batch_size=run.job.batch_size,
            type=accelerator_type,
            count=count,
            steps=step - before,
            seconds=(at - since).total_seconds(),
            since_launch=before - course.first_step,
            at=at.timestamp(),
        )
        for (before, since), (step, at) in pairwise(course.newest)
        if at > since
    ]


def _workload(run: Run) -> str:
    """Results on emulated devices are stored for this job alone: no other job may rely on them."""
    return of_share(own_workload(run.job) if run.emulated else workload_of(run.job), run.job)


def _sample_row(run: Run, measured: Number, gpus: list[_Held], measured_at: datetime) -> ThroughputSample:
    return ThroughputSample(
        run=run,
        epoch=run.epoch,
        workload=_workload(run),
        batch_size=run.job.batch_size,
        accelerator_type=gpus[0].accelerator_type,
        count=len(gpus),
        steps_per_s=measured.steps_per_s,
        samples=measured.samples,
        emulated=run.emulated,
        measured_at=measured_at,
    )


def _mark_pace(run: Run, measured: Number, now: datetime) -> None:
    """The mark follows the measurement; the event is written once for a launch."""
    pace = run.pace_steps_per_s
    if pace is None or (missed := measured.steps_per_s < PACE_KEPT * pace) == run.pace_missed:
        return
    Run.objects.filter(pk=run.pk).update(pace_missed=missed)
    run.pace_missed = missed
    reported = JobEvent.objects.filter(job=run.job, run=run, kind="pace_missed", detail__epoch=run.epoch)
    if missed and not reported.exists():
        text = f"#{run.job.number} {run.job.name} cannot keep its emulated pace: "
        text += f"{measured.steps_per_s:.3g} of {pace:.3g} steps/s"
        detail = {"epoch": run.epoch, "steps_per_s": measured.steps_per_s, "pace_steps_per_s": pace}
        events.append(kind="pace_missed", job=run.job, run=run, at=now, text=text, detail=detail)
