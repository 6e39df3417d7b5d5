"""Columns of what time sharing looks up for each job.

Jobs that are the same objects as in the previous round keep their rows, so a round only works on those that changed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import blake2b
from operator import is_

import numpy as np
from numpy.typing import NDArray

from scheduling.capacity.cluster_view import RoundView
from scheduling.capacity.memo import Latest
from scheduling.domain import Job, Snapshot
from scheduling.lifecycle import State
from scheduling.policies.time_shares.programs.groups import steps_per_s
from scheduling.solvers.lp import Floats, Ints

#: Smaller relative changes of a throughput are no reason to recompute.
_CHANGE = 0.05
_Words = NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class JobColumns:
    """By index in `jobs`."""

    jobs: tuple[Job, ...]
    types: tuple[str, ...]  # types of GPUs that jobs hold
    kinds: Ints  # index of the type of the job's GPUs; -1: it has none, or waits for them
    submitted_at: Floats
    restart_cost_s: Floats  # -1: must not be moved now
    digests: _Words  # [2, job], 0 for jobs without a time share
    lasts: bool  # no row depends on the time
    shape: tuple[object, ...]

    @cached_property
    def ids(self) -> tuple[str, ...]:
        return tuple([job.id for job in self.jobs])

    @property
    def digest(self) -> str:
        """Of all jobs with a time share, independent of their order."""
        return "".join(f"{total:016x}" for total in self.digests.sum(axis=1, dtype=np.uint64).tolist())

    def find(self, jobs: Iterable[Job]) -> Ints:
        """Indices of these very objects; -1: unknown, or the row depends on the time."""
        places = {id(job): n for n, job in enumerate(self.jobs) if job.not_before is None}
        return np.array([places.get(id(job), -1) for job in jobs], dtype=np.int64)


def _empty(jobs: int) -> tuple[Ints, Floats, Floats, _Words]:
    return np.full(jobs, -1), np.zeros(jobs), np.full(jobs, -1.0), np.zeros((2, jobs), dtype=np.uint64)


_latest = Latest(JobColumns((), (), *_empty(0), True, ()))


def columns_of(snapshot: Snapshot, field: RoundView) -> JobColumns:
    before, jobs = _latest.value, snapshot.jobs
    alike = before.shape == field.shape
    if alike and before.lasts and len(jobs) == len(before.jobs) and all(map(is_, jobs, before.jobs)):
        return before
    place = before.find(jobs) if alike else np.full(len(jobs), -1)
    (same,) = np.nonzero(place >= 0)
    kinds, submitted_at, restart_cost_s, digests = _empty(len(jobs))
    kinds[same], submitted_at[same] = before.kinds[place[same]], before.submitted_at[place[same]]
    restart_cost_s[same], digests[:, same] = before.restart_cost_s[place[same]], before.digests[:, place[same]]
    types = {kind: n for n, kind in enumerate(before.types if alike else ())}
    for n in np.nonzero(place < 0)[0].tolist():
        job = jobs[n]
        submitted_at[n] = job.submitted_at
        if job.gang is not None and job.gpu_ids and job.state is not State.STANDBY:
            kinds[n] = types.setdefault(job.gang.type, len(types))
        if job.state is State.RUNNING:
            restart_cost_s[n] = job.restart_cost_s
        if _has_time_share(job, snapshot.now):
            digests[:, n] = _digest(job.id, job.weight, job.priority, _row(job, field))
    lasts = all(job.not_before is None for job in jobs)
    job_columns = JobColumns(jobs, tuple(types), kinds, submitted_at, restart_cost_s, digests, lasts, field.shape)
    _latest.value = job_columns
    return job_columns


def _has_time_share(job: Job, now: float) -> bool:
    """Whether the job gets a time share; a later change alters the signature."""
    if job.gpu_ids:
        return job.restartable and job.resizable and not job.held
    waits = job.held or job.waits_for or job.state is State.WAITING_FOR_INITIAL_CONTACT
    return not waits and (job.not_before is None or job.not_before <= now)


def _row(job: Job, field: RoundView) -> str:
    """The job's throughputs, as far as they matter."""
    spans = field.spans(job)
    if spans.row is None:
        speeds = (steps_per_s(job, kind, field.total[kind], field.largest[kind]) for kind in field.types)
        spans.row = ",".join(str(round(math.log(v) / _CHANGE)) if v > 0 else "-" for v in speeds)
    return spans.row


@lru_cache(maxsize=1 << 16)
def _digest(job: str, weight: float, priority: int, row: str) -> tuple[int, int]:
    """Of one job."""
    both = blake2b(f"{job}:{weight:g}:{priority}:{row}".encode(), digest_size=16).digest()
    return int.from_bytes(both[:8]), int.from_bytes(both[8:])
