"""What really happened in a simulated trace, and what forecasts made on the way knew and said."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from scheduling.domain import Allocation, Job, Snapshot
from scheduling.forecast.arrivals import recorded
from scheduling.forecast.forecast import Budget, Known, Start, foresee
from scheduling.forecast.future import Times
from scheduling.forecast.run_times import History, Past
from scheduling.simulator.engine import Engine
from scheduling.simulator.inputs.trace import Cluster, TraceJob
from scheduling.simulator.outcome import Options
from scheduling.simulator.run import Run

#: So many ended jobs and arrivals are remembered.
PASTS, ARRIVALS = 4_000, 500


@dataclass(frozen=True, slots=True)
class Said:
    """A forecast for one job at one moment, and when it really started."""

    made_at: float
    job: str
    said: Start
    waited_before_s: float
    started_at: float


class Blind:
    """A policy that knows of no job how long it will take: traces say how long jobs took, which nobody knew."""

    def __init__(self, policy: Any) -> None:
        self._policy = policy
        self.name, self.parameters = policy.name, policy.parameters
        self.capabilities = policy.capabilities

    def allocate(self, snapshot: Snapshot) -> Allocation:
        answer: Allocation = self._policy.allocate(replace(snapshot, jobs=tuple(map(blinded, snapshot.jobs))))
        return answer


def blinded(job: Job) -> Job:
    return replace(job, curves={}, types=job.types or tuple(job.curves))


@dataclass
class Truth:
    """One simulation with forecasts every `every_s` seconds from `since` on."""

    jobs: Sequence[TraceJob]
    cluster: Cluster
    policy: Any
    every_s: float
    since_s: float
    blind: bool
    noise: float = 0.0
    budget: Budget = field(default_factory=Budget)
    most_per_moment: int = 60
    said: list[tuple[float, Run, Start]] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)

    def run(self) -> list[Said]:
        policy: Any = Blind(self.policy) if self.blind else self.policy
        engine = Engine(self.jobs, self.cluster, policy, options=Options(1, noise=self.noise))
        last = max(job.arrival_s for job in self.jobs)
        moments = int((last - self.since_s) / self.every_s)
        for number in range(moments):
            at = self.since_s + number * self.every_s
            engine.clock.after(at, lambda at=at: self._forecast(engine, at))  # type: ignore[misc]
        engine.run()
        return [
            Said(at, run.job.id, start, at - run.job.arrival_s, run.started_at - self.cluster.launch_s)
            for at, run, start in self.said
            if run.started_at is not None
        ]

    def _forecast(self, engine: Engine, at: float) -> None:
        waiting = [run for run in engine.live.values() if not run.gpu_ids]
        if len(waiting) < 2:
            return
        snapshot = engine.sight.snapshot(engine.live.values())
        trained = {
            key: at - run.started_at for key, run in engine.live.items() if run.started_at is not None and run.gang
        }
        if self.blind:
            snapshot = replace(snapshot, jobs=tuple(map(blinded, snapshot.jobs)))
        began = time.process_time()
        known = Known(History(self._pasts(engine, trained)), trained, self._arrivals(engine), self._times())
        forecast = foresee(snapshot, self.policy, known, seed=int(at), budget=self.budget)
        self.cpu_s.append(time.process_time() - began)
        self.waiting.append(len(waiting))
        step = max(1, len(waiting) // self.most_per_moment)
        for run in sorted(waiting, key=lambda run: run.job.number)[::step]:
            if run.job.id in forecast.starts:
                self.said.append((at, run, forecast.starts[run.job.id]))

    def _times(self) -> Times:
        launch_s = self.cluster.launch_s
        return Times(launch_s, self.cluster.checkpoint_s + self.cluster.stop_s, 3 * launch_s)

    def _pasts(self, engine: Engine, trained: dict[str, float]) -> list[Past]:
        ended = [run for run in engine.arrivals[: engine.arrived] if run.finished_at is not None][-PASTS:]
        over = [_past(run, (run.finished_at or 0.0) - (run.started_at or 0.0), over=True) for run in ended]
        return over + [_past(engine.live[key], seconds, over=False) for key, seconds in trained.items()]

    def _arrivals(self, engine: Engine) -> Any:
        came = engine.arrivals[max(0, engine.arrived - ARRIVALS) : engine.arrived]
        views = [replace(run, seen=None, gpu_ids=(), gang=None) for run in came]
        jobs = [run.view(run.job.arrival_s, 0.0, 0.0) for run in views]
        return recorded([blinded(job) for job in jobs] if self.blind else jobs)


def _past(run: Run, seconds: float, *, over: bool) -> Past:
    return Past(run.job.project, run.job.user, run.job.min_gpus, seconds, over=over)
