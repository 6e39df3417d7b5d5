"""Drained nodes for display: which jobs are still there, until when, and what happens to each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import QuerySet

from portal.core.times import iso, moment
from portal.jobs.models import Assignment, Hold, Job, Node
from portal.readmodels.cluster.catalogue import describe_nodes, redact_foreign_job
from portal.readmodels.cluster.node_checks import describe_checks
from portal.snapshot.rows import as_holding, drain_of
from portal.throughput.available import cluster_types
from scheduling import domain
from scheduling.capacity.draining import expected_end, outlook, sentence
from scheduling.lifecycle import TERMINAL, State

_LEAVING = frozenset({State.CHECKPOINTING, State.STOPPING})


@dataclass(frozen=True, slots=True)
class _There:
    """A job with its GPUs on one node, as rounds see it, and whether its gang spans nodes."""

    job: Job
    gpus: int
    seen: domain.Job
    spans: bool


def describe_with_drains(nodes: QuerySet[Node], project_ids: set[int], now: datetime) -> list[dict[str, Any]]:
    """Nodes by name, with their jobs, the effect of their drains, and their checks."""
    rows = list(nodes.select_related("drained_by", "check_waived_by").order_by("name"))
    return describe_nodes(rows, project_ids, describe_drains(rows, project_ids, now), describe_checks(rows))


def describe_drains(nodes: Sequence[Node], project_ids: set[int], now: datetime) -> dict[int, dict[str, Any]]:
    """Drains of these nodes, by id. The number of statements does not grow with nodes, and is 0 without drains."""
    drained = {node.pk: drain for node in nodes if (drain := drain_of(node)) is not None}
    there = _there(drained.keys(), now) if drained else {}
    return {
        node.pk: {
            "state": "draining" if there.get(node.pk) else "drained",
            "since_at": iso(node.drained_at),
            "deadline_at": iso(node.drain_deadline_at),
            "reason": node.drain_reason,
            "by": str(node.drained_by) if node.drained_by else None,
            "jobs": [_job(one, drained[node.pk], project_ids, now) for one in there.get(node.pk, ())],
        }
        for node in nodes
        if node.pk in drained
    }


def preview_drain(node: Node, deadline_at: datetime | None, project_ids: set[int], now: datetime) -> dict[str, Any]:
    """What a drain would do to the jobs that run there now."""
    drain = domain.Drain(None if deadline_at is None else deadline_at.timestamp())
    jobs = _there({node.pk}, now).get(node.pk, ())
    return {
        "deadline_at": iso(deadline_at),
        "jobs": [_job(one, drain, project_ids, now) for one in jobs],
    }


def _job(there: _There, drain: domain.Drain, project_ids: set[int], now: datetime) -> dict[str, Any]:
    """Jobs of others only with what everybody may see."""
    job, seen, at = there.job, there.seen, now.timestamp()
    shown: dict[str, Any] = {"outcome": None, "expected_end_at": None, "text": None}
    if job.project_id in project_ids and seen.state in _LEAVING:
        shown |= {"outcome": "moves", "text": f"#{job.number} is on its way off the node."}
    elif job.project_id in project_ids:
        end = expected_end(seen, at, spans=there.spans)
        what = outlook(seen, drain, at, end)
        text = sentence(job.number, drain, what, end)
        shown = {"outcome": what, "expected_end_at": iso(moment(end, now)), "text": text}
    return {"job": redact_foreign_job(job, project_ids), "gpus": there.gpus, **shown}


def _there(node_ids: Iterable[int], now: datetime) -> Mapping[int, list[_There]]:
    """Jobs that hold GPUs on each node, by number."""
    holds = Hold.objects.filter(accelerator__node__in=list(node_ids), during__upper_inf=True)
    held: dict[int, dict[Any, set[int]]] = defaultdict(lambda: defaultdict(set))
    for node_id, run_id, gpu in holds.values_list("accelerator__node_id", "run_id", "accelerator_id"):
        held[node_id][run_id].add(gpu)
    runs = {run_id for by_run in held.values() for run_id in by_run}
    if not runs:
        return {}
    rows = Job.objects.filter(run__in=runs).exclude(run__state__in=[state.value for state in TERMINAL])
    jobs = list(rows.select_related("run").prefetch_related("project", "model_type", "qos", "array"))
    planned = Assignment.objects.filter(run__in=runs, during__upper_inf=True).order_by("accelerator_id")
    gpus: dict[Any, tuple[int, ...]] = defaultdict(tuple)
    kind_of, node_of = dict[int, str](), dict[int, int]()
    columns = ("run_id", "accelerator_id", "accelerator__node_id", "accelerator__node__accelerator_type")
    for run_id, gpu, node_id, kind in planned.values_list(*columns):
        gpus[run_id] += (gpu,)
        kind_of[gpu], node_of[gpu] = kind, node_id
    seen = as_holding(jobs, gpus, kind_of, cluster_types(jobs[0].cluster_id)) if jobs else []
    spread = {one.id: len({node_of[gpu] for gpu in one.gpu_ids}) > 1 for one in seen}
    pairs = sorted(zip(jobs, seen, strict=True), key=lambda pair: pair[0].number)
    return {
        node_id: [
            _There(job, len(by_run[job.run_id]), view, spread[view.id]) for job, view in pairs if job.run_id in by_run
        ]
        for node_id, by_run in held.items()
    }
