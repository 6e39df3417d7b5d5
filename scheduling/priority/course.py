"""How priorities develop over time: age grows, usage decays, and running jobs go on using GPUs.

No other job starts or arrives: this extrapolates the formula, it does not forecast the queue.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from scheduling.domain import Job, Snapshot
from scheduling.priority.scoring import Formula, Scores, score


def course(
    snapshot: Snapshot,
    jobs: Sequence[Job],
    formula: Formula,
    ahead_s: Sequence[float],
    *,
    ends: Mapping[str, float] | None = None,
    reset_at: float = math.inf,
) -> list[Scores]:
    """The scores of `jobs`, for each of these numbers of seconds from now.

    `ends`: when jobs release their GPUs, by id; other jobs keep them. `reset_at`: when all earlier usage is reset.
    """
    known = replace(snapshot, jobs=_relevant_jobs(snapshot.jobs))
    return [score(_later(known, after_s, reset_at), jobs, formula, ends) for after_s in ahead_s]


def _relevant_jobs(jobs: Sequence[Job]) -> tuple[Job, ...]:
    """Jobs that hold GPUs, and one other job of each user in each project, which only puts the user in the tree."""
    seen: set[tuple[str, str]] = set()
    kept = []
    for job in jobs:
        if job.held_since is not None or (job.project, job.user) not in seen:
            kept.append(job)
            seen.add((job.project, job.user))
    return tuple(kept)


def _later(snapshot: Snapshot, after_s: float, reset_at: float) -> Snapshot:
    now = snapshot.now + after_s
    if now < reset_at:
        return replace(snapshot, now=now)
    jobs = (
        job if job.held_since is None else replace(job, held_since=max(job.held_since, reset_at))
        for job in snapshot.jobs
    )
    return replace(snapshot, now=now, usage={}, jobs=tuple(jobs))
