"""The work ahead of each pending job, in GPU-seconds: it yields starts that no future reached.

A job's position is the remaining work of running jobs and of jobs ahead of it, spread evenly over the GPUs: when it
would start if no GPU were ever idle and no job overtook another. The pace of a future is how much longer starts took in
it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from scheduling.domain import Gang, Job, Snapshot
from scheduling.forecast.future_job import speed_on
from scheduling.forecast.run_times import History, RunTime

#: Work of one job beyond this is not counted.
_LONGEST_S = 365 * 86_400.0


@dataclass
class Road:
    """`waiting`: all pending jobs in order."""

    snapshot: Snapshot
    waiting: Sequence[Job]
    history: History
    trained_s: Mapping[str, float]
    places_s: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        gpus = max(1, usable_gpus(self.snapshot))
        ahead = sum(self._work(job) for job in self.snapshot.jobs if job.gpu_ids)
        for job in self.waiting:
            self.places_s[job.id] = ahead / gpus
            ahead += self._work(job)

    def _work(self, job: Job) -> float:
        return work_gpu_s(job, self.history.typical(job, self.trained_s.get(job.id, 0.0)))

    def pace(self, starts: Mapping[str, float]) -> float:
        """Of the last quarter of the started jobs, by position."""
        now = self.snapshot.now
        known = sorted((self.places_s[key], at - now) for key, at in starts.items() if self.places_s.get(key, 0.0) > 0)
        last = known[-max(1, len(known) // 4) :]
        return median(seconds / place for place, seconds in last) if last else 1.0

    def after_s(self, key: str, pace: float) -> float:
        """Seconds from now."""
        return self.places_s[key] * pace


def usable_gpus(snapshot: Snapshot) -> int:
    return sum(len(node.gpu_ids) for node in snapshot.nodes if node.schedulable)


def work_gpu_s(job: Job, run: RunTime) -> float:
    count = len(job.gpu_ids) or job.min_gpus
    rate = best_rate(job, count) if run.sized else 1.0
    return count * min(run.seconds(rate), _LONGEST_S)


def best_rate(job: Job, count: int) -> float:
    """On its present gang, else on the type with the largest throughput for its size."""
    gangs = [job.gang] if job.gang else [Gang(kind, count) for kind in job.curves]
    return max((speed_on(job.curves, gang) for gang in gangs), default=math.nan)
