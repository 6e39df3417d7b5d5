"""Throughput measured while a run trains: one sample row per launch, the median after warm-up."""

from __future__ import annotations

from itertools import islice, pairwise

from portal.jobs.models import Accelerator, MetricPoint, Run, ThroughputSample
from portal.jobs.profiles import workload_of
from scheduling.throughput import Sample, measure

#: Below this share of its pace an emulated run counts as one that cannot keep it.
PACE_KEPT = 0.9
_WINDOW = 40


def update(run: Run) -> None:
    """Take the newest reports of this launch into account: the run's steps/s and its sample row."""
    newest = MetricPoint.objects.filter(run=run, epoch=run.epoch).order_by("-at")
    points = list(islice(newest.iterator(chunk_size=_WINDOW), _WINDOW))[::-1]
    if not points:
        return
    first_step = MetricPoint.objects.filter(run=run, epoch=run.epoch).order_by("at").values_list("step", flat=True)[0]
    gpus = list(Accelerator.objects.filter(holds__run=run, holds__during__upper_inf=True).select_related("node"))
    if not gpus:
        return
    accelerator_type = gpus[0].node.accelerator_type
    samples = [
        Sample(
            model=workload_of(run.job),
            batch_size=run.job.batch_size,
            type=accelerator_type,
            count=len(gpus),
            steps=later.step - earlier.step,
            seconds=(later.at - earlier.at).total_seconds(),
            since_launch=earlier.step - first_step,
            at=later.at.timestamp(),
        )
        for earlier, later in pairwise(points)
        if later.step > earlier.step and later.at > earlier.at
    ]
    latest = samples[-3:]
    now_steps_per_s = sum(s.steps for s in latest) / sum(s.seconds for s in latest) if latest else None
    measured = next(iter(measure(samples, warm_up_steps=3).values()), None)
    missed = bool(measured and run.pace_steps_per_s and measured.steps_per_s < PACE_KEPT * run.pace_steps_per_s)
    Run.objects.filter(pk=run.pk).update(
        steps_per_s=now_steps_per_s or run.steps_per_s, pace_missed=missed if measured else run.pace_missed
    )
    if measured:
        ThroughputSample.objects.update_or_create(
            run=run,
            epoch=run.epoch,
            defaults={
                "workload": workload_of(run.job),
                "batch_size": run.job.batch_size,
                "accelerator_type": accelerator_type,
                "count": len(gpus),
                "steps_per_s": measured.steps_per_s,
                "samples": measured.samples,
                "emulated": run.emulated,
                "measured_at": points[-1].at,
            },
        )
