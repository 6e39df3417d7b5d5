"""Records which jobs took GPUs from a run: later rounds' reasons say why it waits, not why it lost them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from portal.jobs.models import Cluster, Displacement, Run
from scheduling.domain import Move
from scheduling.domain.reason_codes import LEFT_NODE, ReasonCode

_MOST_TAKERS = 10
_LONGEST = 200
_WINDOWS: Mapping[str, str] = {
    ReasonCode.MAINTENANCE: "maintenance window",
    ReasonCode.RESERVATION: "reservation",
}


def record_preemptors(cluster_id: int, moves: Iterable[Move], runs: Mapping[str, Run], now: datetime) -> None:
    """Record the applied moves that left a run with fewer GPUs. `runs`: by job, of all moved jobs.

    Only the newest one of a run is kept: time-sharing policies take and return GPUs in every round.
    """
    losses = [move for move in moves if move.before is not None and _after(move) < move.before.count]
    if not losses:
        return
    policy = Cluster.objects.values_list("policy_name", flat=True).get(pk=cluster_id)
    Displacement.objects.filter(run__in=[runs[move.job_id] for move in losses]).delete()
    Displacement.objects.bulk_create([_row(move, runs, policy, now) for move in losses])


def _after(move: Move) -> int:
    return move.gang.count if move.gang else 0


def _row(move: Move, runs: Mapping[str, Run], policy: str, now: datetime) -> Displacement:
    assert move.before is not None
    return Displacement(
        run=runs[move.job_id],
        at=now,
        kind=Displacement.Kind.SHRUNK if move.gpu_ids else Displacement.Kind.PREEMPTED,
        token=move.reason.token,
        text=move.reason.text,
        level=_level(move, policy),
        accelerator_type=move.before.type,
        gpus_before=move.before.count,
        gpus_after=_after(move),
        taken_by=[runs[key].job.number for key in move.taken_by if key in runs][:_MOST_TAKERS],
    )


def _level(move: Move, policy: str) -> str:
    detail = move.reason.detail
    if move.reason.token in (ReasonCode.RECLAIMED, ReasonCode.BUDGET_SUSPENDED):
        return str(detail["level"])[:_LONGEST]
    if move.reason.token == ReasonCode.PREEMPTED:
        return f"level of service {detail['qos']}"
    if move.reason.token in _WINDOWS:
        return _WINDOWS[move.reason.token]
    return "node" if move.reason.token in LEFT_NODE else f"policy {policy}"
