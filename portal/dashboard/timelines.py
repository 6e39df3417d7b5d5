"""Timelines of GPU occupancy: of one job, and of the cluster."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Count, Q
from psycopg2.extras import DateTimeTZRange

from portal.core.times import iso
from portal.dashboard.spans import MAX_HOLDS, GangSpan, changes_of, gangs_of, split
from portal.jobs.models import Cluster, Hold, Job, JobEvent
from portal.readmodels.cluster.catalogue import redact_foreign_job
from scheduling.lifecycle import TERMINAL, TRAINING, Event, State, coarse_state

MAX_EVENTS = 5_000


def job_timeline(job: Job) -> dict[str, Any]:
    newest = JobEvent.objects.filter(job=job).exclude(to_state="").order_by("-id")[:MAX_EVENTS]
    events = list(newest)[::-1]
    gangs = gangs_of(job)
    return {
        "states": _states(job, events),
        "allocations": [_allocation(gang) for gang in gangs],
        "resizes": [_rescale(event, gangs) for event in events if event.kind == Event.REALLOCATED],
    }


def _states(job: Job, events: list[JobEvent]) -> list[dict[str, Any]]:
    """States in order, over all attempts; the last one ends with the run."""
    by_run: dict[UUID | None, list[JobEvent]] = defaultdict(list)
    for event in events:
        by_run[event.run_id].append(event)
    spans = []
    for run in job.runs.order_by("attempt"):
        steps = [(run.created_at, State.WAITING_FOR_INITIAL_CONTACT)]
        steps += [(event.at, State(event.to_state)) for event in by_run[run.pk]]
        trained = run.attempt > 1 and run.has_trained
        ends = [at for at, _ in steps[1:]] + [run.ended_at]
        for (from_at, state), to_at in zip(steps, ends, strict=True):
            trained = trained or state in TRAINING
            if state in TERMINAL:
                continue
            coarse = coarse_state(state, rescaling=trained)
            spans.append({"state": state.value, "coarse": coarse, "from_at": iso(from_at), "to_at": iso(to_at)})
    return spans


def _allocation(gang: GangSpan) -> dict[str, Any]:
    return {
        "epoch": gang.epoch,
        "type": gang.type,
        "count": gang.count,
        "gpus": [{"node": node, "index": index} for node, index in gang.gpus],
        "from_at": iso(gang.from_at),
        "to_at": iso(gang.to_at),
    }


def _rescale(event: JobEvent, gangs: Iterable[GangSpan] = ()) -> dict[str, Any]:
    """If a job leaves its GPUs without a plan, as when it is suspended, `gangs` tell what it had."""

    def count(gang: dict[str, Any] | None) -> int:
        return gang["count"] if gang else 0

    at = event.at
    held = (gang.count for gang in gangs if gang.from_at < at and (gang.to_at is None or at <= gang.to_at))
    return {
        "at": iso(at),
        "before": count(event.detail["before"]) if "before" in event.detail else max(held, default=0),
        "after": count(event.detail.get("after")),
    }


def cluster_timeline(cluster: Cluster, project_ids: set[int], from_at: datetime, to_at: datetime) -> dict[str, Any]:
    """All occupancy between two times, newest first; names only for the given projects' jobs."""
    window = DateTimeTZRange(from_at, to_at)
    newest = Hold.objects.filter(run__job__cluster=cluster, during__overlap=window).order_by("-id")
    holds = list(newest.select_related("accelerator__node", "run__job__project")[: MAX_HOLDS + 1])
    rescales = JobEvent.objects.filter(
        job__cluster=cluster, kind=Event.REALLOCATED, at__range=(from_at, to_at)
    ).select_related("job")
    spans = _hold_spans(holds[:MAX_HOLDS], project_ids, from_at, to_at)
    present = Count("accelerators", filter=Q(accelerators__present=True))
    return {
        "from_at": iso(from_at),
        "to_at": iso(to_at),
        "nodes": [
            {"name": node.name, "type": node.accelerator_type, "gpus": node.gpu_count, "emulated": node.emulated}
            for node in cluster.nodes.annotate(gpu_count=present).order_by("name")
        ],
        "holds": spans[:MAX_HOLDS],
        "resizes": [_rescale(e) | {"number": e.job.number} for e in rescales.order_by("id")[:MAX_EVENTS] if e.job],
        "truncated": len(holds) > MAX_HOLDS or len(spans) > MAX_HOLDS,
    }


def _hold_spans(holds: list[Hold], project_ids: set[int], from_at: datetime, to_at: datetime) -> list[dict[str, Any]]:
    changes = changes_of({hold.run_id for hold in holds})
    counts = Counter((hold.run_id, hold.epoch) for hold in holds)
    spans = []
    for hold in holds:
        launch = hold.run_id, hold.epoch
        shared = {
            "node": hold.accelerator.node.name,
            "index": hold.accelerator.index,
            "job": redact_foreign_job(hold.run.job, project_ids),
            "epoch": hold.epoch,
            "count": counts[launch],
            "share_percent": hold.share_percent,
        }
        for part in split(hold.started_at, hold.during.upper, changes.get(launch, [])):
            end = part["to_at"]
            if part["from_at"] < to_at and (end is None or end > from_at):
                spans.append(shared | {"from_at": iso(part["from_at"]), "to_at": iso(end), "kind": part["kind"]})
    return spans
