"""The effect of more jobs, or of another policy: compares two plans for the next round."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from statistics import pvariance
from typing import Literal

from scheduling.domain import WHOLE, Gang, Job, Move, Plan, Reason, Snapshot
from scheduling.domain.gpu_parts import taken
from scheduling.domain.reason_codes import UNSCHEDULABLE
from scheduling.engine.rounds import plan_round
from scheduling.forecast.forecast import in_order
from scheduling.forecast.future_job import speed_on
from scheduling.policies.base import Policy
from scheduling.policies.capabilities import ScoresJobs

Verdict = Literal["now", "later", "never"]


@dataclass(frozen=True, slots=True)
class Effect:
    """On one live job: its GPUs after each of the two plans.

    Slowdowns are its best throughput alone on the cluster over the planned one; None while it holds nothing, or if its
    throughput is unknown. `later_s`: how much later it would end if it kept its new gang until it ends, or until the
    new jobs do, with its restarts.
    """

    job: str
    holds: bool  # GPUs at present
    before: Gang | None
    after: Gang | None
    slowdown_before: float | None
    slowdown_after: float | None
    later_s: float | None


@dataclass(frozen=True, slots=True)
class Change:
    """From one plan to another: the effects on live jobs, largest loss first, and on the variance of relative
    throughputs over all jobs that would hold GPUs (population variance; None if no job does)."""

    effects: tuple[Effect, ...]
    variance_before: float | None
    variance_after: float | None


@dataclass(frozen=True, slots=True)
class Preview:
    """For the first new job, and how many of all would start at once."""

    verdict: Verdict
    reason: Reason
    gang: Gang | None
    gpu_ids: tuple[int, ...]
    from_others: bool  # other jobs must leave some of its GPUs first
    starting: int
    position: int | None  # in the queue, from 1, if it would wait
    change: Change


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan for a snapshot, and the resulting relative throughputs, by job that would hold GPUs."""

    snapshot: Snapshot
    moves: Mapping[str, Move]
    relative: Mapping[str, float]

    @classmethod
    def of(cls, snapshot: Snapshot, plan: Plan) -> Planned:
        moves, known = {move.job_id: move for move in plan.moves}, _Known(snapshot)
        return cls(snapshot, moves, _relative(snapshot.jobs, moves, known))


def compare(before: Planned, after: Plan, newcomers: Sequence[Job] = ()) -> Change:
    """`after` answers the same snapshot with the new jobs in it, or with another policy."""
    jobs, known = before.snapshot.jobs, _Known(before.snapshot)
    was, will = before.moves, {move.job_id: move for move in after.moves}
    moved = [job for job in jobs if job.id in was or job.id in will]
    horizon_s = max((_lasts_s(job, will, known) for job in newcomers), default=inf)
    effects = [_effect(job, was, will, known, horizon_s) for job in moved if _gpus(job, was) != _gpus(job, will)]
    changed = {job.id for job in moved}
    relative = [value for key, value in before.relative.items() if key not in changed]
    relative += _relative((*moved, *newcomers), will, known).values()
    return Change(
        effects=tuple(sorted(effects, key=_loss, reverse=True)),
        variance_before=_variance(before.relative.values()),
        variance_after=_variance(relative),
    )


def preview(without: Planned, snapshot: Snapshot, policy: Policy, newcomers: Sequence[Job]) -> Preview:
    """`without`: the next round as it is; `snapshot`: the same plus everything that the new jobs refer to, but without
    them."""
    joined = replace(snapshot, jobs=(*snapshot.jobs, *newcomers))
    plan = plan_round(joined, policy)
    moves = {move.job_id: move for move in plan.moves}
    first = newcomers[0]
    own = moves.get(first.id)
    verdict = _verdict(own, plan.reasons[first.id])
    waits = verdict == "later" and not first.waits_for
    return Preview(
        verdict=verdict,
        reason=plan.reasons[first.id],
        gang=own.gang if own else None,
        gpu_ids=own.gpu_ids if own else (),
        from_others=own is not None and _is_taken(snapshot, first, own.gpu_ids),
        starting=sum(job.id in moves for job in newcomers),
        position=_position(joined, policy, first) if waits else None,
        change=compare(without, plan, newcomers),
    )


def _verdict(own: Move | None, reason: Reason) -> Verdict:
    if own is not None:
        return "now"
    return "never" if reason.token in UNSCHEDULABLE else "later"


def _is_taken(snapshot: Snapshot, job: Job, gpus: Sequence[int]) -> bool:
    """Other jobs use so much of one of the GPUs that the job does not fit beside them."""
    shares = taken(snapshot.jobs)
    return any(gpu in snapshot.blocked_gpu_ids or shares[gpu] + job.gpu_milli > WHOLE for gpu in gpus)


def _position(joined: Snapshot, policy: Policy, first: Job) -> int:
    """As elsewhere: if a policy ranks jobs, among those that may start; else among all that are not on hold."""
    ranks = isinstance(policy, ScoresJobs)
    waiting = [job for job in joined.jobs if not (job.gpu_ids or job.held or (ranks and job.waits_for))]
    return 1 + next(at for at, job in enumerate(in_order(joined, policy, waiting)) if job.id == first.id)


class _Known:
    """Throughputs on the types of the snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._total: Counter[str] = Counter()
        for node in snapshot.nodes:
            if not node.lost:
                self._total[node.type] += len(node.gpu_ids)

    def alone(self, job: Job) -> float:
        """On as many GPUs of one type as the job may have."""
        kinds = job.types or job.curves.keys()
        most = {kind: min(self._total[kind], job.max_gpus or self._total[kind]) for kind in kinds}
        return max((job.curves[kind].at(count) for kind, count in most.items() if kind in job.curves), default=0.0)

    def rate(self, job: Job, gang: Gang | None) -> float:
        """0 if unknown."""
        known = gang is not None and any(curve.source != "trial" for curve in job.curves.values())
        return speed_on(job.curves, gang) if gang is not None and known else 0.0

    def slowdown(self, job: Job, gang: Gang | None) -> float | None:
        rate, alone = self.rate(job, gang), self.alone(job)
        return max(1.0, alone / rate) if rate > 0 and alone > 0 else None


def _relative(jobs: Sequence[Job], moves: Mapping[str, Move], known: _Known) -> dict[str, float]:
    slowdowns = ((job.id, known.slowdown(job, _gang(job, moves))) for job in jobs)
    return {key: 1.0 / slowdown for key, slowdown in slowdowns if slowdown is not None}


def _variance(relative: Collection[float]) -> float | None:
    """Population variance."""
    return pvariance(relative) if relative else None


def _gang(job: Job, moves: Mapping[str, Move]) -> Gang | None:
    move = moves.get(job.id)
    return move.gang if move else job.gang


def _gpus(job: Job, moves: Mapping[str, Move]) -> frozenset[int]:
    move = moves.get(job.id)
    return frozenset(move.gpu_ids if move else job.gpu_ids)


def _lasts_s(job: Job, moves: Mapping[str, Move], known: _Known) -> float:
    """How long a new job would keep its first gang; 0 if it does not start."""
    gang = _gang(job, moves)
    rate = known.rate(job, gang)
    return 0.0 if gang is None else job.remaining_steps / rate if rate > 0 else inf


def _effect(job: Job, before: Mapping[str, Move], after: Mapping[str, Move], known: _Known, horizon_s: float) -> Effect:
    """`horizon_s`: after this time the job is assumed to have its original gang again."""
    was, will = _gang(job, before), _gang(job, after)
    rate, then = known.rate(job, was), known.rate(job, will)
    later_s = None
    if rate > 0 and then > 0:
        restarts = (job.id in after) - (job.id in before) if job.gpu_ids else 0
        whole_s = job.remaining_steps / then
        lasts_s = min(horizon_s, whole_s)
        later_s = lasts_s * (1.0 - then / rate) + restarts * job.restart_cost_s * (1 if lasts_s == whole_s else 2)
    slow = (known.slowdown(job, was), known.slowdown(job, will))
    return Effect(job.id, bool(job.gpu_ids), was, will, *slow, later_s)


def _loss(effect: Effect) -> tuple[int, float]:
    lost = (effect.before.count if effect.before else 0) - (effect.after.count if effect.after else 0)
    return lost, effect.later_s or 0.0
