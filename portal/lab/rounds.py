"""Stored rounds for administrators: the snapshot, the decision, and why."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import F, Func, IntegerField, JSONField, QuerySet
from django.db.models.functions import Coalesce

from portal.core.times import iso
from portal.jobs.models import Cluster, Decision, Job
from portal.snapshot.decisions import snapshot_of
from scheduling.cases.round_case import case_of
from scheduling.domain import Job as SeenJob
from scheduling.domain import Snapshot
from scheduling.lifecycle import coarse_state

#: How many of a round's jobs are shown, moved ones first; how many of its nodes.
MOST_JOBS, MOST_NODES = 500, 300
Moves = Mapping[str, Mapping[str, Any]]


def kept_rounds(
    cluster: Cluster, *, from_at: datetime | None = None, to_at: datetime | None = None, moved: bool | None = None
) -> QuerySet[Decision]:
    """Without snapshots; of the plans only the kinds of moves and what was rejected."""
    kinds = Func(
        F("plan"), template="jsonb_path_query_array(%(expressions)s, '$.moves[*].kind')", output_field=JSONField()
    )
    rejected = Func(F("plan"), template="%(expressions)s -> 'rejected'", output_field=JSONField())
    count = Func(F("plan"), template="jsonb_array_length(%(expressions)s -> 'moves')", output_field=IntegerField())
    rows = Decision.objects.filter(cluster=cluster).defer("snapshot", "plan").select_related("cluster")
    rows = rows.annotate(kinds=kinds, rejected=rejected, moves=Coalesce(count, 0))
    if from_at is not None:
        rows = rows.filter(at__gte=from_at)
    if to_at is not None:
        rows = rows.filter(at__lt=to_at)
    if moved is not None:
        rows = rows.filter(**{"moves__gt" if moved else "moves": 0})
    return rows


def describe_row(row: Any) -> dict[str, Any]:
    """`row`: from `kept_rounds`."""
    kinds = Counter(row.kinds)
    return {
        "round": row.round,
        "at": iso(row.at),
        "policy": row.policy_name,
        "parameters": row.policy_parameters,
        "moves": {kind: kinds[kind] for kind in ("start", "rescale", "preempt")},
        "rejected": row.rejected,
        "seconds": row.seconds,
    }


def round_of(cluster: Cluster, number: int) -> Decision:
    """Decision.DoesNotExist if it is not stored."""
    return Decision.objects.select_related("base", "cluster").get(cluster=cluster, round=number)


def describe_round(decision: Decision) -> dict[str, Any]:
    snapshot, plan = snapshot_of(decision), decision.plan
    moves = {move["job_id"]: move for move in plan["moves"]}
    kinds = Counter(move["kind"] for move in plan["moves"])
    ordered = in_view(snapshot.jobs, moves)
    rows = named(job.id for job in ordered)
    return {
        "round": decision.round,
        "at": iso(decision.at),
        "cluster": decision.cluster.name,
        "policy": decision.policy_name,
        "parameters": decision.policy_parameters,
        "moves": {kind: kinds[kind] for kind in ("start", "rescale", "preempt")},
        "rejected": plan["rejected"],
        "seconds": decision.seconds,
        "figures": plan["figures"],
        "before": _neighbour(decision, "before"),
        "after": _neighbour(decision, "after"),
        "counts": counts_of(snapshot),
        "nodes": boards(snapshot, moves),
        "jobs_total": len(snapshot.jobs),
        "jobs": [_job(job, moves, plan["reasons"], rows, snapshot) for job in ordered],
    }


def _neighbour(decision: Decision, which: str) -> int | None:
    """The next stored round in one direction."""
    rows = Decision.objects.filter(cluster=decision.cluster)
    if which == "before":
        return rows.filter(round__lt=decision.round).order_by("-round").values_list("round", flat=True).first()
    return rows.filter(round__gt=decision.round).order_by("round").values_list("round", flat=True).first()


def counts_of(snapshot: Snapshot) -> dict[str, Any]:
    gpus = [len(node.gpu_ids) for node in snapshot.nodes]
    usable = [len(node.gpu_ids) for node in snapshot.nodes if node.schedulable and not node.lost]
    return {
        "nodes": len(gpus),
        "gpus": sum(gpus),
        "gpus_usable": sum(usable),
        "gpus_allocated": len({gpu for job in snapshot.jobs for gpu in job.gpu_ids}),
        "jobs": len(snapshot.jobs),
        "running": sum(bool(job.gpu_ids) for job in snapshot.jobs),
        "waiting": sum(not job.gpu_ids for job in snapshot.jobs),
    }


def in_view(jobs: Iterable[SeenJob], changed: Iterable[str]) -> list[SeenJob]:
    """The jobs that are shown: changed ones, then those with GPUs, then waiting ones; by number."""
    first = set(changed)
    return sorted(jobs, key=lambda job: (job.id not in first, not job.gpu_ids, job.number))[:MOST_JOBS]


def named(ids: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Names of the jobs that still exist."""
    rows = Job.objects.filter(pk__in=[UUID(key) for key in ids]).values_list("pk", "name", "project__name")
    return {str(pk): {"name": name, "project": project} for pk, name, project in rows}


def who(job: SeenJob, rows: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    known = rows.get(job.id, {"name": None, "project": job.project})
    return {"number": job.number, **known}


def gang_of(gang: Any) -> dict[str, Any] | None:
    """From a plan's text, or a snapshot."""
    if gang is None:
        return None
    kind, count = (gang["type"], gang["count"]) if isinstance(gang, Mapping) else (gang.type, gang.count)
    return {"type": kind, "count": count}


def _job(
    job: SeenJob, moves: Moves, reasons: Moves, rows: Mapping[str, Mapping[str, Any]], snapshot: Snapshot
) -> dict[str, Any]:
    move, reason = moves.get(job.id), reasons.get(job.id)
    most = [snapshot.limits[key] for key in job.limits if key in snapshot.limits]
    return {
        "job": who(job, rows),
        "state": coarse_state(job.state),
        "priority": job.priority,
        "min_gpus": job.min_gpus,
        "max_gpus": job.max_gpus,
        "types": list(job.types),
        "share_percent": job.gpu_milli // 10,
        "remaining_steps": job.remaining_steps,
        "restartable": job.restartable,
        "limits": [f"{limit.level}: {limit.text or _limit_words(limit)}" for limit in most],
        "before": gang_of(job.gang),
        "after": gang_of(move["gang"] if move else job.gang),
        "move": move["kind"] if move else None,
        "reason": {"code": reason["token"], "text": reason["text"]} if reason else None,
    }


def _limit_words(limit: Any) -> str:
    kinds = {"gpus": "GPUs", "running_jobs": "running jobs", "queued_jobs": "queued jobs", "spent": "budget used up"}
    word = f"{limit.type} {kinds[limit.kind]}" if limit.type else kinds[limit.kind]
    return word if limit.kind == "spent" else f"{limit.most} {word}"


def boards(snapshot: Snapshot, moves: Moves) -> list[dict[str, Any]]:
    """Nodes, with the numbers of the jobs on each GPU before and after the moves."""
    before = _on_gpus({job.number: job.gpu_ids for job in snapshot.jobs})
    after = _on_gpus({j.number: moves[j.id]["gpu_ids"] if j.id in moves else j.gpu_ids for j in snapshot.jobs})
    return [
        {
            "name": node.name,
            "type": node.type,
            "schedulable": node.schedulable,
            "lost": node.lost,
            "before": [before[gpu] for gpu in node.gpu_ids],
            "after": [after[gpu] for gpu in node.gpu_ids],
        }
        for node in snapshot.nodes[:MOST_NODES]
    ]


def _on_gpus(held: Mapping[int, Iterable[int]]) -> defaultdict[int, list[int]]:
    found: defaultdict[int, list[int]] = defaultdict(list)
    for number in sorted(held):
        for gpu in held[number]:
            found[gpu].append(number)
    return found


def export_case(decision: Decision) -> dict[str, Any]:
    """Input for `manage.py solve`."""
    snapshot = snapshot_of(decision)
    document = case_of(snapshot, decision.policy_name, decision.policy_parameters)
    source = {"cluster": decision.cluster.name, "round": decision.round, "at": iso(decision.at)}
    return {**document, "source": source}
