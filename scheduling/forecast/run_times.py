"""Estimates how long a job will train: from its steps and speed, from earlier jobs, or from its time limit.

If steps and speed are known, a job runs all its steps unless its owner's jobs tend to end early. Otherwise it lasts as
long as earlier jobs of the same owner and size, given how long it has lasted already.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Literal

from scheduling.domain import Job
from scheduling.forecast.survival import Survival

Basis = Literal["steps", "history", "time_limit", "default"]
#: A group of earlier jobs is used if at least this many lasted longer than this one has.
_LEAST = 8
#: Relative error of predicted speeds by source of the curve, as a lognormal deviation.
_SPEED_ERROR: Mapping[str, float] = {"measured": 0.03, "user": 0.1, "catalogue": 0.1, "estimated": 0.25}


@dataclass(frozen=True, slots=True)
class Past:
    """How long one job trained. `part`: the fraction of its steps that were run, if it has steps."""

    project: str
    user: str
    gpus: int
    seconds: float
    part: float | None = None
    over: bool = True  # False: it still trains


@dataclass(frozen=True, slots=True)
class RunTime:
    """The remaining work of a job in one future. `units` are steps if `sized`, else seconds."""

    units: float
    sized: bool
    limit_s: float = math.inf  # training ends after this time in any case

    def seconds(self, rate: float) -> float:
        return min(self.units / rate if rate > 0 else math.inf, self.limit_s)


@dataclass
class History:
    """Earlier jobs by owner and size, the narrowest group first."""

    pasts: Iterable[Past]
    default_s: float = 86_400.0
    speed_error: Mapping[str, float] = field(default_factory=lambda: _SPEED_ERROR)
    _seconds: dict[tuple[object, ...], Survival] = field(init=False)
    _parts: dict[tuple[object, ...], Survival] = field(init=False)

    def __post_init__(self) -> None:
        seconds: dict[tuple[object, ...], list[Past]] = defaultdict(list)
        parts: dict[tuple[object, ...], list[Past]] = defaultdict(list)
        for past in self.pasts:
            for key in _groups(past.project, past.user, past.gpus):
                seconds[key].append(past)
            if past.part is not None and past.over:
                for key in ((past.project, past.user), ()):
                    parts[key].append(past)
        self._seconds = {
            key: Survival.of([past.seconds for past in group], [past.over for past in group])
            for key, group in seconds.items()
        }
        self._parts = {
            key: Survival.of([past.part or 0.0 for past in group], [True] * len(group)) for key, group in parts.items()
        }

    def basis(self, job: Job, trained_s: float) -> Basis:
        """What `draw` is based on."""
        if speed_known(job):
            return "steps"
        if self._like(job, trained_s) is not None:
            return "history"
        return "default" if job.time_limit_s is None else "time_limit"

    def typical(self, job: Job, trained_s: float) -> RunTime:
        """The median of what `draw` draws."""
        return self._run_time(job, trained_s, 0.5, 0.0)

    def draw(self, job: Job, trained_s: float, rng: Random) -> RunTime:
        """One possible remaining run time; always consumes the same number of random numbers."""
        return self._run_time(job, trained_s, rng.random(), rng.gauss(0.0, 1.0))

    def _run_time(self, job: Job, trained_s: float, first: float, second: float) -> RunTime:
        """`first` is uniform between 0 and 1, `second` normal."""
        limit_s = math.inf if job.time_limit_s is None else job.time_limit_s
        if speed_known(job):
            known = (curve.source for curve in job.curves.values() if curve.source != "trial")
            error = max(self.speed_error.get(source, 0.25) for source in known)
            return RunTime(self._steps(job, first) * math.exp(error * second), True, limit_s)
        group = self._like(job, trained_s)
        if group is not None:
            total_s = group.draw_above(trained_s, first)
            if math.isinf(total_s):  # longer than any earlier job
                total_s = 1.5 * max(trained_s, float(group.values[-1]))
            return RunTime(max(1.0, total_s - trained_s), False, limit_s)
        if not math.isinf(limit_s):
            return RunTime(max(1.0, first * limit_s), False, limit_s)
        return RunTime(max(1.0, -math.log(1.0 - first) * max(self.default_s, trained_s / 2.0)), False)

    def _steps(self, job: Job, uniform: float) -> float:
        """Steps that it will still run: all, unless similar jobs tend to end before."""
        total = job.done_steps + job.remaining_steps
        if total <= 0:
            return 0.0
        done = job.done_steps / total
        for key in ((job.project, job.user), ()):
            group = self._parts.get(key)
            if group is not None and group.above(done) >= _LEAST:
                return max(0.0, min(1.0, group.draw_above(done, uniform)) - done) * total
        return job.remaining_steps

    def _like(self, job: Job, trained_s: float) -> Survival | None:
        for key in _groups(job.project, job.user, job.gang.count if job.gang else job.min_gpus):
            group = self._seconds.get(key)
            if group is not None and group.above(trained_s) >= _LEAST:
                return group
        return None


def _groups(project: str, user: str, gpus: int) -> Iterator[tuple[object, ...]]:
    yield project, user, gpus
    yield project, user
    yield project, gpus
    yield (gpus,)
    yield ()


def speed_known(job: Job) -> bool:
    """On at least one type; a trial curve means that nothing is known."""
    return any(curve.source != "trial" for curve in job.curves.values())
