"""A job in a future, and what both future and forecast ask about jobs and policies."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from scheduling.capacity.draining import moments
from scheduling.domain import Curve, Gang, Job, Snapshot
from scheduling.forecast.run_times import RunTime
from scheduling.lifecycle import State
from scheduling.policies.base import Policy
from scheduling.policies.capabilities import Needs


@dataclass(slots=True)
class Sim:
    """`job` is as it was when the future began, except for since when it holds GPUs."""

    job: Job
    run: RunTime
    gpus: tuple[int, ...] = ()
    gang: Gang | None = None
    rate: float = 0.0  # units of `run` per second
    counted_at: float = 0.0
    units_done: float = 0.0
    trained_s: float = 0.0
    locked_until: float = -math.inf
    leaving: bool = False
    epoch: int = 0
    shown: Job | None = None
    shown_at: float = 0.0

    def count(self, now: float) -> None:
        """Count training up to now."""
        seconds = now - self.counted_at
        if self.gang is not None and seconds > 0:
            self.units_done += seconds * self.rate
            self.trained_s += seconds
            self.counted_at = now

    def left_s(self) -> float:
        """Seconds of training at the present rate."""
        steps_s = (self.run.units - self.units_done) / self.rate if self.rate > 0 else math.inf
        return max(0.0, min(steps_s, self.run.limit_s - self.trained_s))

    def as_seen(self, state: State, protected_until: float | None) -> Job:
        steps = min(self.units_done, self.job.remaining_steps) if self.run.sized else 0.0
        limit_s = self.job.time_limit_s
        return replace(
            self.job,
            state=state,
            gpu_ids=self.gpus,
            gang=self.gang,
            protected_until=protected_until,
            remaining_steps=self.job.remaining_steps - steps,
            done_steps=self.job.done_steps + steps,
            ran_s=self.job.ran_s + self.trained_s,
            time_limit_s=limit_s if limit_s is None else max(0.0, limit_s - self.trained_s),
        )


def may_use(job: Job, kind: str) -> bool:
    return (not job.types or kind in job.types) and (not job.curves or kind in job.curves)


def keeps(policy: Policy, snapshot: Snapshot) -> bool:
    """Whether running jobs keep their GPUs, so that a round can only start jobs."""
    if (
        policy.capabilities.elastic
        or policy.capabilities.shares_time
        or Needs.PAIRS in policy.capabilities.needs
        or snapshot.guarantees
        or snapshot.windows
    ):
        return False
    if next(moments(snapshot), None) is not None:
        return False
    if not policy.capabilities.preempts:
        return True
    by_level = Needs.FAIR_SHARE in policy.capabilities.needs
    return by_level and not any(level.preempts for level in snapshot.qos.values())


def speed_on(curves: Mapping[str, Curve], gang: Gang, *, spans: bool = False) -> float:
    """Steps/s of a gang; on a type without measurements, the speed on another type."""
    curve = curves.get(gang.type)
    if curve is None or curve.source == "trial":
        known = [one.at(gang.count) for one in curves.values() if one.source != "trial"]
        return max(known, default=1.0)
    return curve.at(gang.count) * (curve.spread_at(gang.count) if spans else 1.0)
