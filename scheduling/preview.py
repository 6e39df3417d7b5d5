"""What more jobs would do: the next round with them beside the same round without them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from scheduling.domain import Gang, Job, Move, Plan, Reason, Snapshot
from scheduling.forecast.forecast import in_order
from scheduling.forecast.sim import speed_on
from scheduling.policies.base import Policy
from scheduling.rounds import plan_round

Verdict = Literal["now", "later", "never"]
#: Reasons of rounds that nothing but a change of the cluster or of the job file takes away.
_NEVER = frozenset({"never", "no_type", "no_profile", "partition_too_small", "slot_too_small"})


@dataclass(frozen=True, slots=True)
class Effect:
    """On one live job: what it would have next, without the newcomers and with them.

    Slowdowns are its best throughput alone on the cluster over the planned one; None while it holds nothing, or where
    its throughput is not known. `later_s`: by how much its end would move if it kept either, with the restart.
    """

    job: str
    before: Gang | None
    after: Gang | None
    slowdown_before: float | None
    slowdown_after: float | None
    later_s: float | None


@dataclass(frozen=True, slots=True)
class Preview:
    """Of the first newcomer, and how many of all would start at once."""

    verdict: Verdict
    reason: Reason
    gang: Gang | None
    gpu_ids: tuple[int, ...]
    from_others: bool  # some of its GPUs have to be left by others first
    starting: int
    position: int | None  # in the queue, from 1, where it would wait
    effects: tuple[Effect, ...]


def preview(snapshot: Snapshot, without: Plan, policy: Policy, newcomers: Sequence[Job]) -> Preview:
    """`without`: what `plan_round` answered to `snapshot`, in which there are no newcomers. At least one of them."""
    joined = replace(snapshot, jobs=(*snapshot.jobs, *newcomers))
    plan = plan_round(joined, policy)
    moves = {move.job_id: move for move in plan.moves}
    first = newcomers[0]
    starts = [moves[job.id] for job in newcomers if job.id in moves]
    own = moves.get(first.id)
    taken = {job.id for job in newcomers}
    return Preview(
        verdict=_verdict(own, plan.reasons[first.id]),
        reason=own.reason if own else plan.reasons[first.id],
        gang=own.gang if own else None,
        gpu_ids=own.gpu_ids if own else (),
        from_others=own is not None and bool(_held(snapshot).intersection(own.gpu_ids)),
        starting=len(starts),
        position=None if own or first.waits_for else _position(joined, policy, first),
        effects=_effects(snapshot, {move.job_id: move for move in without.moves}, moves, taken),
    )


def _verdict(own: Move | None, reason: Reason) -> Verdict:
    if own is not None:
        return "now"
    return "never" if reason.token in _NEVER else "later"


def _held(snapshot: Snapshot) -> set[int]:
    return {gpu for job in snapshot.jobs for gpu in job.gpu_ids} | snapshot.blocked_gpu_ids


def _position(joined: Snapshot, policy: Policy, first: Job) -> int:
    waiting = [job for job in joined.jobs if not (job.gpu_ids or job.held or job.waits_for)]
    return 1 + next(at for at, job in enumerate(in_order(joined, policy, waiting)) if job.id == first.id)


def _effects(
    snapshot: Snapshot, without: Mapping[str, Move], moves: Mapping[str, Move], newcomers: set[str]
) -> tuple[Effect, ...]:
    """Of all whose gang differs, those who lose the most first."""
    total = dict.fromkeys({node.type for node in snapshot.nodes}, 0)
    for node in snapshot.nodes:
        if not node.lost:
            total[node.type] += len(node.gpu_ids)
    moved = (without.keys() | moves.keys()) - newcomers
    found = []
    for job in snapshot.jobs:
        if job.id in moved:
            before, after = _gang(job, without), _gang(job, moves)
            if before != after:
                found.append(_effect(job, before, after, total))
    return tuple(sorted(found, key=_loss, reverse=True))


def _gang(job: Job, moves: Mapping[str, Move]) -> Gang | None:
    move = moves.get(job.id)
    return move.gang if move else job.gang


def _effect(job: Job, before: Gang | None, after: Gang | None, total: Mapping[str, int]) -> Effect:
    kinds = [kind for kind in total if kind in job.curves and (not job.types or kind in job.types)]
    most = {kind: min(total[kind], job.max_gpus or total[kind]) for kind in kinds}
    alone = max((job.curves[kind].at(most[kind]) for kind in kinds if most[kind]), default=0.0)
    known = any(curve.source != "trial" for curve in job.curves.values())
    was, will = (speed_on(job.curves, gang) if gang and known else 0.0 for gang in (before, after))
    slow = [alone / rate if rate > 0 and alone > 0 else None for rate in (was, will)]
    later_s = None
    if was > 0 and will > 0:
        restarts = (after != job.gang) - (before != job.gang) if job.gang else 0
        later_s = job.remaining_steps / will - job.remaining_steps / was + restarts * job.restart_cost_s
    return Effect(job.id, before, after, slow[0], slow[1], later_s)


def _loss(effect: Effect) -> tuple[int, float]:
    lost = (effect.before.count if effect.before else 0) - (effect.after.count if effect.after else 0)
    return lost, effect.later_s or 0.0
