"""Throughput measured while a run trains: one sample row per launch, the median after warm-up."""

from __future__ import annotations

from datetime import datetime
from itertools import islice, pairwise

from portal.jobs import events
from portal.jobs.models import Accelerator, Hold, JobEvent, MetricPoint, PairSample, Run, ThroughputSample
from portal.jobs.profiles import of_share, own_workload, policy_workload, workload_of
from portal.jobs.schema import WHOLE_PERCENT
from portal.jobs.services.times import from_posix
from scheduling.lifecycle import TRAINING, State
from scheduling.throughput import Number, Sample, measure

#: Below this share of its pace an emulated run counts as one that cannot keep it.
PACE_KEPT = 0.9
_WINDOW = 40
#: Every report of so much training is measured, and later ones once in each stretch of a minute.
_AT_FIRST_S, _EVERY_S = 300.0, 60.0


def is_due(run: Run, heard_at: datetime | None, now: datetime) -> bool:
    """Whether a report is to be measured; `heard_at`: when the one before it came. With neighbours, who come and go,
    each is."""
    if run.job.gpu_share_percent < WHOLE_PERCENT:
        return True
    if heard_at is None or run.ready_at is None or (now - run.ready_at).total_seconds() < _AT_FIRST_S:
        return True
    return now.timestamp() // _EVERY_S != heard_at.timestamp() // _EVERY_S


def update(run: Run, now: datetime) -> None:
    """Take the newest reports of this launch into account: the run's steps/s and its sample row."""
    newest = MetricPoint.objects.filter(run=run, epoch=run.epoch).order_by("-at")
    points = list(islice(newest.iterator(chunk_size=_WINDOW), _WINDOW))[::-1]
    gpus = list(Accelerator.objects.filter(holds__run=run, holds__during__upper_inf=True).select_related("node"))
    if not points or not gpus:
        return
    samples = _samples(run, points, gpus[0].node.accelerator_type, len(gpus))
    latest = samples[-3:]
    now_steps_per_s = sum(s.steps for s in latest) / sum(s.seconds for s in latest) if latest else None
    measured = next(iter(measure(samples, warm_up_steps=3).values()), None)
    Run.objects.filter(pk=run.pk).update(steps_per_s=now_steps_per_s or run.steps_per_s)
    if measured:
        _mark_pace(run, measured, now)
        row = _sample_row(run, measured, gpus, points[-1].at)
        ThroughputSample.objects.update_or_create(run=run, epoch=run.epoch, defaults=row)
    if run.job.gpu_share_percent < WHOLE_PERCENT:
        _note_pair(run, samples, gpus[0])


def _note_pair(run: Run, samples: list[Sample], gpu: Accelerator) -> None:
    """What it makes while one other trains on the same GPU, and nobody else is there."""
    held = Hold.objects.filter(accelerator=gpu, during__upper_inf=True).exclude(run=run)
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
        "accelerator_type": gpu.node.accelerator_type,
        "steps_per_s": measured.steps_per_s,
        "samples": measured.samples,
        "emulated": run.emulated,
        "measured_at": from_posix(together[-1].at),
    }
    PairSample.objects.update_or_create(run=run, epoch=run.epoch, beside=beside, defaults=row)


def _together_since(run: Run, beside: Run, gpu: Accelerator) -> float:
    """Since when both train, and nobody else has been there."""
    left = Hold.objects.filter(accelerator=gpu, during__upper_inf=False).order_by("-during__endswith")
    ends = [hold.during.upper for hold in left[:1]]
    times = [at for at in (run.ready_at, beside.ready_at, *ends) if at is not None]
    return max(times).timestamp()


def _samples(run: Run, points: list[MetricPoint], accelerator_type: str, count: int) -> list[Sample]:
    """From one report to the next."""
    first_step = MetricPoint.objects.filter(run=run, epoch=run.epoch).order_by("at").values_list("step", flat=True)[0]
    return [
        Sample(
            model=_workload(run),
            batch_size=run.job.batch_size,
            type=accelerator_type,
            count=count,
            steps=later.step - earlier.step,
            seconds=(later.at - earlier.at).total_seconds(),
            since_launch=earlier.step - first_step,
            at=later.at.timestamp(),
        )
        for earlier, later in pairwise(points)
        if later.step > earlier.step and later.at > earlier.at
    ]


def _workload(run: Run) -> str:
    """What runs on emulated devices is filed as the job's own: no other job may count on it."""
    return of_share(own_workload(run.job) if run.emulated else workload_of(run.job), run.job)


def _sample_row(run: Run, measured: Number, gpus: list[Accelerator], measured_at: datetime) -> dict[str, object]:
    return {
        "workload": _workload(run),
        "batch_size": run.job.batch_size,
        "accelerator_type": gpus[0].node.accelerator_type,
        "count": len(gpus),
        "steps_per_s": measured.steps_per_s,
        "samples": measured.samples,
        "emulated": run.emulated,
        "measured_at": measured_at,
    }


def _mark_pace(run: Run, measured: Number, now: datetime) -> None:
    """The mark follows the measurement; the event is written once for a launch."""
    pace = run.pace_steps_per_s
    if pace is None or (missed := measured.steps_per_s < PACE_KEPT * pace) == run.pace_missed:
        return
    Run.objects.filter(pk=run.pk).update(pace_missed=missed)
    run.pace_missed = missed
    told = JobEvent.objects.filter(job=run.job, run=run, kind="pace_missed", detail__epoch=run.epoch)
    if missed and not told.exists():
        text = f"#{run.job.number} {run.job.name} cannot keep its emulated pace: "
        text += f"{measured.steps_per_s:.3g} of {pace:.3g} steps/s"
        detail = {"epoch": run.epoch, "steps_per_s": measured.steps_per_s, "pace_steps_per_s": pace}
        events.append(kind="pace_missed", job=run.job, run=run, at=now, text=text, detail=detail)
