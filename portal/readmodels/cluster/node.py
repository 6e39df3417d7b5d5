"""Data of a node's page: its jobs, its use over time, and its faults."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, Exists, OuterRef, Q, QuerySet, TextField, Value
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Coalesce

from portal.core.times import iso
from portal.jobfile.resources import WHOLE_PERCENT
from portal.jobs import events
from portal.jobs.models import Accelerator, Assignment, Hold, JobEvent, Node, Run
from portal.jobs.models.activity import RunActivity
from portal.readmodels.cluster.catalogue import redact_foreign_job
from portal.readmodels.cluster.drains import describe_with_drains
from scheduling.lifecycle import State

BUCKET_S, BUCKETS = 1_800, 48
HELD_OVER = timedelta(seconds=BUCKET_S * BUCKETS)
FAULTS_OVER = timedelta(days=7)
#: Some processes of a run may be gone before its failure is noticed.
SLACK = timedelta(days=1)
#: Every report has the GPUs' utilisation, at least every two minutes.
MEASURED_OVER = timedelta(minutes=5)
EVENTS_OVER = timedelta(days=90)
MOST = 20
JOINED = "node_joined"
EVENT_KINDS = (
    JOINED,
    "node_lost",
    "node_back",
    "node_drained",
    "node_resumed",
    "node_drain_due",
    "node_checked",
    "node_check_failed",
    "node_check_waived",
    "node_faulty",
)

#: From when to when, in POSIX seconds, and how much of one GPU, 0 to 1.
Span = tuple[float, float, float]


def describe_node_page(node: Node, project_ids: set[int], now: datetime) -> dict[str, Any]:
    """The node as in the list, and its history; names of jobs only for the given projects.

    The number of statements is fixed, and each covers a bounded time.
    """
    (described,) = describe_with_drains(Node.objects.filter(pk=node.pk), project_ids, now)
    present = dict(Accelerator.objects.filter(node=node).values_list("pk", "present"))
    return {
        **described,
        **_occupied(node, project_ids, now),
        "use": _use(node, [gpu for gpu, there in present.items() if there], now),
        **_faults(list(present), project_ids, now),
        "events": [_event(event) for event in _events(node, now)[:MOST]],
    }


def _occupied(node: Node, project_ids: set[int], now: datetime) -> dict[str, Any]:
    """Its jobs by number, and the GPUs' utilisation. For a running job its present GPUs count, not planned ones."""
    found: dict[Any, list[Hold | Assignment]] = {}
    for model in (Hold, Assignment):
        rows = model.objects.filter(accelerator__node=node, during__upper_inf=True)
        there: dict[Any, list[Hold | Assignment]] = {}
        for row in rows.select_related("run__job__project"):
            there.setdefault(row.run.job_id, []).append(row)
        found = there | found
    holds = [row for rows in found.values() for row in rows if isinstance(row, Hold)]
    busy = _busy(holds, now)
    parts = [busy[hold.run_id] for hold in holds if hold.run_id in busy]
    jobs = [_occupant(rows, project_ids, busy) for rows in found.values()]
    return {
        "jobs": sorted(jobs, key=lambda one: one["job"]["number"]),
        "busy_part": round(sum(parts) / len(parts), 4) if parts else None,
    }


def _busy(holds: list[Hold], now: datetime) -> dict[Any, float]:
    """By run: the utilisation of its GPUs, if it was reported recently in this launch."""
    launches = {hold.run_id: hold.epoch for hold in holds}
    rows = RunActivity.objects.filter(run__in=launches, measured_at__gt=now - MEASURED_OVER)
    means = {row.run_id: row.mean_utilisation for row in rows if row.epoch == launches[row.run_id]}
    return {run_id: mean for run_id, mean in means.items() if mean is not None}


def _occupant(rows: list[Hold | Assignment], project_ids: set[int], busy: dict[Any, float]) -> dict[str, Any]:
    started = [row.started_at for row in rows if isinstance(row, Hold)]
    job = rows[0].run.job
    part = busy.get(rows[0].run_id) if job.project_id in project_ids else None
    return {
        "job": redact_foreign_job(job, project_ids),
        "gpus": len({row.accelerator_id for row in rows}),
        "share_percent": max(row.share_percent for row in rows),
        "since_at": iso(min(started, default=None)),
        "busy_part": None if part is None else round(part, 4),
    }


def _use(node: Node, gpu_ids: list[int], now: datetime) -> dict[str, Any]:
    """Use of its present GPUs. The time before a GPU joined is unknown, and does not count."""
    from_at = now - HELD_OVER
    joined_at = _events(node, now).filter(kind=JOINED, at__gte=from_at).values_list("at", flat=True).first()
    held_s = held_seconds(_spans(gpu_ids, from_at, now), from_at.timestamp())
    starts = [from_at + timedelta(seconds=BUCKET_S * i) for i in range(BUCKETS)]
    known = [bool(gpu_ids) and not (joined_at and joined_at > at + timedelta(seconds=BUCKET_S)) for at in starts]
    whole_s = BUCKET_S * len(gpu_ids)
    parts = [min(1.0, s / whole_s) if there else None for s, there in zip(held_s, known, strict=True)]
    there = [part for part in parts if part is not None]
    return {
        "from_at": iso(from_at),
        "to_at": iso(now),
        "bucket_s": BUCKET_S,
        "allocated": [
            [round(at.timestamp(), 3), None if part is None else round(part, 4)]
            for at, part in zip(starts, parts, strict=True)
        ],
        "allocated_part": round(sum(there) / len(there), 4) if there else None,
    }


def _holds(gpu_ids: list[int], from_at: datetime) -> QuerySet[Hold]:
    """Occupancy that extends beyond this time; an index covers each branch (`hold_open`, `hold_ended`)."""
    since = Q(during__upper_inf=True) | Q(during__endswith__gt=from_at)
    return Hold.objects.filter(since, accelerator__in=gpu_ids)


def _spans(gpu_ids: list[int], from_at: datetime, now: datetime) -> list[Span]:
    return [
        (hold.started_at.timestamp(), (hold.during.upper or now).timestamp(), hold.share_percent / WHOLE_PERCENT)
        for hold in _holds(gpu_ids, from_at).only("during", "share_percent")
    ]


def held_seconds(spans: Iterable[Span], from_s: float) -> list[float]:
    """GPU-seconds occupied in each of the buckets that begin at `from_s`; time outside of them is ignored."""
    found = [0.0] * BUCKETS
    for start, end, part in spans:
        start, end = max(start, from_s), min(end, from_s + BUCKETS * BUCKET_S)
        for i in range(int((start - from_s) // BUCKET_S), BUCKETS):
            low = from_s + i * BUCKET_S
            if low >= end:
                break
            found[i] += part * max(0.0, min(end, low + BUCKET_S) - max(start, low))
    return found


def _faults(gpu_ids: list[int], project_ids: set[int], now: datetime) -> dict[str, Any]:
    """Runs that failed while their last launch had GPUs there: occupancy ends with its run, or later."""
    since = now - FAULTS_OVER
    there = _holds(gpu_ids, since - SLACK).filter(run=OuterRef("pk"), epoch=OuterRef("epoch"))
    failed = Run.objects.filter(Exists(there), state=State.FAILED, ended_at__gt=since).annotate(
        exit_reason=Coalesce(KeyTextTransform("reason", "exit"), Value("unknown", TextField()))
    )
    counts = failed.order_by().values_list("exit_reason").annotate(n=Count("pk"))
    newest = failed.select_related("job__project").order_by("-ended_at", "-pk")[:MOST]
    return {"faults": [_fault(run, project_ids) for run in newest], "faults_by_reason": dict(counts)}


def _fault(run: Any, project_ids: set[int]) -> dict[str, Any]:
    """`run` is a Run with its `exit_reason`."""
    return {
        "job": redact_foreign_job(run.job, project_ids),
        "attempt": run.attempt,
        "at": iso(run.ended_at),
        "reason": run.exit_reason,
        "text": run.reason_text if run.job.project_id in project_ids else None,
    }


def _events(node: Node, now: datetime) -> QuerySet[JobEvent]:
    """Newest first: reads the (project, id) index of the months in this time."""
    of_cluster = JobEvent.objects.filter(project=None, job=None, kind__in=EVENT_KINDS, at__gt=now - EVENTS_OVER)
    return of_cluster.filter(events.of_cluster(node.cluster), detail__node=node.name).order_by("-id")


def _event(event: JobEvent) -> dict[str, Any]:
    return {"id": event.pk, "at": iso(event.at), "kind": event.kind, "text": event.text}
