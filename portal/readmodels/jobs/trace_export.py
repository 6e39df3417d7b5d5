"""Exports finished jobs as a trace for the simulator (`evenkeel-trace/1`, docs/simulator.md)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db.models import Count

from portal.jobs.models import Accelerator, Cluster, Job
from portal.throughput.job_profiles import job_profiles
from scheduling.lifecycle import State
from scheduling.throughput.curves import Profile

_BATCH = 500


def export_jobs(*, cluster: Cluster, start: datetime, end: datetime, named: bool = False) -> Iterator[dict[str, Any]]:
    """Jobs submitted in [start, end) that finished, by submission; arrivals are relative to `start`.

    Throughputs are today's: measured ones where they exist. Names, owners and commands are not exported, only which
    jobs have the same owner. `named`: with real owners, for internal use.
    """
    types = dict(
        Accelerator.objects.filter(node__cluster=cluster)
        .values_list("node__accelerator_type")
        .annotate(Count("pk"))
        .order_by("node__accelerator_type")
    )
    jobs = (
        Job.objects.filter(cluster=cluster, run__state=State.FINISHED, submitted_at__gte=start, submitted_at__lt=end)
        .select_related("run", "project", "model_type", "owner")
        .order_by("submitted_at", "number")
    )
    batch: list[Job] = []
    for job in jobs.iterator(chunk_size=_BATCH):
        batch.append(job)
        if len(batch) == _BATCH:
            yield from _entries(batch, types, start, named=named)
            batch = []
    yield from _entries(batch, types, start, named=named)


def _entries(jobs: list[Job], types: Mapping[str, int], start: datetime, *, named: bool) -> Iterator[dict[str, Any]]:
    known = job_profiles(jobs, types) if jobs else {}
    for job in jobs:
        entry = _entry(job, known[job.pk], start)
        yield entry | {"user": str(job.owner or "")} if named else entry


def _alias(job: Job) -> str:
    """A stable alias: shows which jobs have the same owner, but not who it is."""
    if job.owner_id is None:
        return ""
    return hashlib.blake2b(f"{settings.SECRET_KEY}/{job.owner_id}".encode(), digest_size=6).hexdigest()


def _entry(job: Job, known: Mapping[str, Profile], start: datetime) -> dict[str, Any]:
    run = job.run
    assert run is not None
    return {
        "id": str(job.number),
        "arrival_s": (job.submitted_at - start).total_seconds(),
        "total_steps": job.total_steps,
        "model_type": job.model_type.name if job.model_type else "",
        "project": job.project.key,
        "user": _alias(job),
        "priority": job.priority,
        "min_gpus": job.min_gpus,
        "max_gpus": job.max_gpus,
        "types": list(job.accelerator_types),
        "restartable": job.can_restart(run),
        "gpu_milli": 10 * job.gpu_share_percent,
        "gpu_memory_mib": job.gpu_memory_mib,
        "cpu_milli": 1_000 * (job.spec.get("cpus") or 0),
        "memory_mib": job.spec.get("memory") or 0,
        "throughputs": {
            kind: {
                "steps_per_s": list(profile.curve.steps_per_s),
                "spread_factor": profile.curve.spread_factor,
                "spread_factors": list(profile.curve.spread_factors),
            }
            for kind, profile in sorted(known.items())
        },
        "observed": {
            "queueing_s": run.queueing_s,
            "launching_s": run.launching_s,
            "running_s": run.running_s,
            "finished_s": (run.ended_at - start).total_seconds() if run.ended_at else None,
            "rescales": run.rescales,
        },
    }
