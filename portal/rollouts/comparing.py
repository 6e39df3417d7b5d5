"""Compares two policies' plans for one snapshot: their figures, and the jobs that they treat differently."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from scheduling.domain import Gang, Job, Move, Plan, Snapshot
from scheduling.forecast.next_round import Effect, Planned, compare

#: Jobs that differ, largest loss first, and the candidate's moves: how many are listed.
MOST_JOBS, MOST_MOVES = 50, 200


@dataclass(frozen=True, slots=True)
class Comparison:
    different: int
    elsewhere: int
    live: dict[str, Any]
    candidate: dict[str, Any]
    jobs: list[dict[str, Any]]
    moves: list[dict[str, Any]]

    @property
    def digest(self) -> str:
        """Equal if the same jobs get the same GPUs in both."""
        changed = [[job["number"], job["live"], job["candidate"]] for job in self.jobs]
        text = json.dumps([self.different, changed], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


def compare_plans(snapshot: Snapshot, live: Plan, candidate: Plan) -> Comparison:
    """Both plans answer the snapshot; neither is applied here."""
    planned = Planned.of(snapshot, live)
    change = compare(planned, candidate)
    different = [effect for effect in change.effects if effect.before != effect.after]
    jobs = {job.id: job for job in snapshot.jobs}
    moves = {move.job_id: move for move in candidate.moves}
    relative = Planned.of(snapshot, candidate).relative
    return Comparison(
        different=len(different),
        elsewhere=len(change.effects) - len(different),
        live=_figures(snapshot, planned.moves, planned.relative, change.variance_before),
        candidate=_figures(snapshot, moves, relative, change.variance_after),
        jobs=[_effect(effect, jobs[effect.job], planned.moves, moves, candidate) for effect in different[:MOST_JOBS]],
        moves=[
            {"number": jobs[move.job_id].number, "kind": move.kind, "gang": _gang(move.gang), "text": move.reason.text}
            for move in candidate.moves[:MOST_MOVES]
            if move.job_id in jobs
        ],
    )


def _figures(
    snapshot: Snapshot, moves: Mapping[str, Move], relative: Mapping[str, float], variance: float | None
) -> dict[str, Any]:
    """As it would be once the moves are made."""
    gpus, holding = 0.0, 0
    for job in snapshot.jobs:
        move = moves.get(job.id)
        count = len(move.gpu_ids if move else job.gpu_ids)
        gpus += count * job.gpu_milli / 1000
        holding += count > 0
    kinds = [move.kind for move in moves.values()]
    return {
        "gpus": round(gpus, 3),
        "holding": holding,
        "starting": kinds.count("start"),
        "rescaled": kinds.count("rescale"),
        "put_out": kinds.count("preempt"),
        "variance": None if variance is None else round(variance, 6),
        "relative_throughput": round(fmean(relative.values()), 4) if relative else None,
    }


def _effect(
    effect: Effect, job: Job, live: Mapping[str, Move], candidate: Mapping[str, Move], plan: Plan
) -> dict[str, Any]:
    reason = plan.reasons.get(effect.job)
    return {
        "number": job.number,
        "project": job.project,
        "now": _gang(job.gang),
        "live": _gang(effect.before),
        "candidate": _gang(effect.after),
        "moved_by_live": effect.job in live,
        "moved_by_candidate": effect.job in candidate,
        "later_s": None if effect.later_s is None else round(effect.later_s, 1),
        "why": reason.text[:300] if reason else "",
    }


def _gang(gang: Gang | None) -> dict[str, Any] | None:
    return {"type": gang.type, "count": gang.count} if gang else None
