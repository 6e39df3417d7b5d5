"""Turns a round's answer into a move and a reason for each job, and the time of the next look."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import replace

from scheduling.capacity.cluster_view import RoundView, queue_key
from scheduling.capacity.draining import moments
from scheduling.capacity.memo import cluster_index
from scheduling.domain import Allocation, Job, Move, Reason, Snapshot
from scheduling.domain.lazy_reasons import LazyReasons
from scheduling.domain.reason_codes import ReasonCode
from scheduling.engine.constraints.host_resources import requests_host_resources
from scheduling.engine.constraints.unavailable_nodes import Unavailable
from scheduling.engine.explain.engine_jobs import EngineJobsExplanation
from scheduling.engine.explain.partition_reasons import PartitionReasons
from scheduling.engine.explain.unschedulable import UnschedulableDiagnosis
from scheduling.engine.reclaim.reclaim import ReclaimDecision
from scheduling.engine.state import Placement
from scheduling.lifecycle import State
from scheduling.policies.base import Policy


def explain_outcome(
    unavailable: Unavailable,
    field: RoundView,
    allocation: Allocation,
    placement: Placement,
    rejected: Reason | None,
    own: Mapping[str, Reason],
    words: PartitionReasons | None,
) -> Mapping[str, Reason]:
    """`own`: reasons of guarantees and budgets, which precede all others. `words`: changes reasons where nodes are
    divided into pools."""
    special: dict[str, Reason] = {}
    given = allocation.counts or allocation.placements or {}
    for job in field.queued:
        if job.id not in placement.gpus and job.id in given:
            beside = ", with the processors and memory that it asks for" if requests_host_resources(job) else ""
            text = f"Enough GPUs are free, but not together on nodes that this job may use{beside}"
            text += "; it starts when they are."
            if job.on_nodes is not None:
                text = f"{job.on_nodes.says}: {text[0].lower()}{text[1:]}"
            special[job.id] = Reason(ReasonCode.NO_LAYOUT, text)
    if rejected:
        special |= {job.id: rejected for job in field.running}
    special |= unavailable.reasons(placement.gpus)
    special |= own
    unable = UnschedulableDiagnosis(unavailable.original, words.pools if words else None)
    # Without a node in service, time-sharing policies give no job a reason.
    vague: set[str] = {ReasonCode.NO_TYPE, ReasonCode.TOO_LARGE}
    vague |= set() if cluster_index(unavailable.original.nodes).usable else {ReasonCode.NEXT_ROUND, ReasonCode.WAITS}
    every = (special, allocation.reasons, field.reasons)
    waiting = Reason(
        ReasonCode.WAITS, "The policy made no decision for this job; it is considered again in the next round."
    )
    full, beside_others = (
        _where_others_are(unavailable.original, placement),
        EngineJobsExplanation(unavailable.original),
    )

    def tell(key: str) -> Reason:
        known = waiting
        for reasons in every:
            if key in reasons:
                known = reasons[key]
                break
        known = words.tell(key, known) if words else known
        diagnosed = unable.reason(key, known) if known.token in vague or known.token == ReasonCode.NO_LAYOUT else known
        known = diagnosed if known.token in vague or diagnosed.token == ReasonCode.NEVER else known
        return beside_others.added_to(known, full[key]) if key in full else known

    return LazyReasons((job.id for job in unavailable.original.jobs), tell)


def _where_others_are(snapshot: Snapshot, placement: Placement) -> Mapping[str, Job]:
    """Pending jobs by id, if the engine's other jobs use some of the nodes."""
    if not (snapshot.others.gpus or any(node.others for node in snapshot.nodes)):
        return {}
    return {job.id: job for job in snapshot.jobs if not job.gpu_ids and job.id not in placement.gpus}


def diff_moves(
    snapshot: Snapshot, unavailable: Unavailable, field: RoundView, placement: Placement, reasons: Mapping[str, Reason]
) -> tuple[Move, ...]:
    gpus, back = placement.gpus, unavailable.give_back
    given = ((job, gpus.get(job.id, ())) for job in snapshot.jobs)
    changed = [job for job, ids in given if (ids is not job.gpu_ids and ids != job.gpu_ids) or job.id in back]
    if not changed:
        return ()
    part, moves = {job.id for job in field.candidates} | unavailable.changed.keys(), list[Move]()
    for job in sorted(changed, key=queue_key):
        if job.id in unavailable.give_back:
            moves.append(Move(job.id, "preempt", (), None, job.gang, reasons[job.id]))
        elif job.id in part or job.id in unavailable.leaving:
            move = _move(job, placement, reasons[job.id])
            moves += [move] if move else []
    held = {job.id: job.gpu_ids for job in changed}
    gets: dict[int, list[str]] = defaultdict(list)
    for move in moves:
        for gpu in set(move.gpu_ids).difference(held[move.job_id]):
            gets[gpu].append(move.job_id)
    taken_by = [_takers(held[move.job_id], move, gets) for move in moves]
    return tuple([replace(move, taken_by=by) if by else move for move, by in zip(moves, taken_by, strict=True)])


def _takers(had: tuple[int, ...], move: Move, gets: Mapping[int, list[str]]) -> tuple[str, ...]:
    """Jobs that get the GPUs that this one leaves, those that get most first."""
    takers = [key for gpu in had if gpu in gets and gpu not in move.gpu_ids for key in gets[gpu]]
    return tuple(key for key, _ in Counter(takers).most_common()) if len(takers) > 1 else tuple(takers)


def _move(job: Job, placement: Placement, reason: Reason) -> Move | None:
    gpus = placement.gpus.get(job.id, ())
    if set(gpus) == set(job.gpu_ids):
        return None
    kind = "preempt" if not gpus else "rescale" if job.gpu_ids else "start"
    return Move(job.id, kind, gpus, placement.gangs.get(job.id), job.gang, reason)


def next_wake_at(
    snapshot: Snapshot, policy: Policy, allocation: Allocation, moves: tuple[Move, ...], back: ReclaimDecision
) -> float | None:
    """The earliest time at which the answer may differ although nothing happened.

    Within a round of time sharing no job moves, protected or not, and all free GPUs are assigned.
    """
    rests = policy.capabilities.holds_within_round
    later = [at for at in (allocation.next_wake_at, back.wake_at) if at is not None]
    later += [edge for window in snapshot.windows for edge in (window.start, window.end)]
    later += moments(snapshot)
    for job in snapshot.jobs:
        if job.not_before is not None and not job.gpu_ids:
            later.append(job.not_before)
        if job.protected_until is not None and job.state is State.RUNNING_PROTECTED and not rests:
            later.append(job.protected_until)
    later = [at for at in later if at > snapshot.now]
    if not rests and any(move.kind == "preempt" for move in moves):
        later.append(snapshot.now)  # the freed GPUs and the preempted job are planned at once
    return min(later, default=None)
