"""What more jobs would do: the next round with them beside the same round without them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import pvariance
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
    variance_before: float | None  # of relative throughputs, over all that would hold GPUs
    variance_after: float | None


def preview(snapshot: Snapshot, without: Plan, policy: Policy, newcomers: Sequence[Job]) -> Preview:
    """`without`: what `plan_round` answered to `snapshot`, in which there are no newcomers. At least one of them."""
    joined = replace(snapshot, jobs=(*snapshot.jobs, *newcomers))
    plan = plan_round(joined, policy)
    before, after = ({move.job_id: move for move in each.moves} for each in (without, plan))
    first, known = newcomers[0], _Known(snapshot)
    own = after.get(first.id)
    return Preview(
        verdict=_verdict(own, plan.reasons[first.id]),
        reason=plan.reasons[first.id],
        gang=own.gang if own else None,
        gpu_ids=own.gpu_ids if own else (),
        from_others=own is not None and bool(_held(snapshot).intersection(own.gpu_ids)),
        starting=sum(job.id in after for job in newcomers),
        position=None if own or first.waits_for else _position(joined, policy, first),
        effects=_effects(snapshot, before, after, known),
        variance_before=_variance(snapshot.jobs, before, known),
        variance_after=_variance(joined.jobs, after, known),
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


class _Known:
    """Throughputs on what the snapshot has."""

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
        """0 where nothing is known."""
        known = gang is not None and any(curve.source != "trial" for curve in job.curves.values())
        return speed_on(job.curves, gang) if gang is not None and known else 0.0

    def slowdown(self, job: Job, gang: Gang | None) -> float | None:
        rate, alone = self.rate(job, gang), self.alone(job)
        return max(1.0, alone / rate) if rate > 0 and alone > 0 else None


def _variance(jobs: Sequence[Job], moves: Mapping[str, Move], known: _Known) -> float | None:
    """Population variance."""
    slowdowns = (known.slowdown(job, _gang(job, moves)) for job in jobs)
    relative = [1.0 / slowdown for slowdown in slowdowns if slowdown is not None]
    return pvariance(relative) if relative else None


def _effects(
    snapshot: Snapshot, before: Mapping[str, Move], after: Mapping[str, Move], known: _Known
) -> tuple[Effect, ...]:
    """Of all whose gang differs, those who lose the most first."""
    moved = [job for job in snapshot.jobs if job.id in before or job.id in after]
    gangs = [(job, _gang(job, before), _gang(job, after)) for job in moved]
    found = [_effect(job, was, will, known) for job, was, will in gangs if was != will]
    return tuple(sorted(found, key=_loss, reverse=True))


def _gang(job: Job, moves: Mapping[str, Move]) -> Gang | None:
    move = moves.get(job.id)
    return move.gang if move else job.gang


def _effect(job: Job, was: Gang | None, will: Gang | None, known: _Known) -> Effect:
    rate, then = known.rate(job, was), known.rate(job, will)
    later_s = None
    if rate > 0 and then > 0:
        restarts = (will != job.gang) - (was != job.gang) if job.gang else 0
        later_s = job.remaining_steps / then - job.remaining_steps / rate + restarts * job.restart_cost_s
    return Effect(job.id, was, will, known.slowdown(job, was), known.slowdown(job, will), later_s)


def _loss(effect: Effect) -> tuple[int, float]:
    lost = (effect.before.count if effect.before else 0) - (effect.after.count if effect.after else 0)
    return lost, effect.later_s or 0.0
