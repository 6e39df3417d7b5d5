"""One future of a cluster: what runs ends, others come, and the scheduler decides as it would.

Rounds are calls of `plan_round` on snapshots like the live ones. Where more would happen than there are rounds left,
events close to each other share one, the closer to now the fewer; who starts then is taken to start when its GPUs
became free.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import count
from typing import Any

from scheduling.domain import Job, Move, Plan, Snapshot
from scheduling.forecast.run_times import RunTime
from scheduling.forecast.sim import Sim, keeps, may_use, speed_on
from scheduling.lifecycle import State
from scheduling.policies.base import Policy
from scheduling.priority.decay import held
from scheduling.rounds import plan_round

#: A round is shown steps and times that are at most this part of what is left out of date.
_STALE = 0.01
#: Jobs that come later than so many others do not come: they would only fill the queue behind.
MOST_ARRIVALS = 300
#: Rounds are stretched to reach what comes within so many seconds.
_FURTHEST_S = 30 * 86_400.0


@dataclass(frozen=True, slots=True)
class Times:
    """What moves take, and how long a launched job is left alone."""

    launch_s: float = 20.0
    stop_s: float = 10.0
    protect_s: float = 60.0


@dataclass
class Future:
    """`starts` fills up: when each job that waits is first given GPUs."""

    base: Snapshot
    policy: Policy
    runs: Mapping[str, RunTime]
    arrivals: Iterator[Job]
    draw: Callable[[Job], RunTime]
    rounds: int  # that may be planned
    horizon_s: float  # in which those who wait now are expected to start
    times: Times = field(default_factory=Times)
    stopped: Callable[[], bool] = lambda: False
    starts: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        base = self.base
        self.now = base.now
        self._began_at = base.now
        self._keeps = keeps(self.policy, base)
        self._ages = getattr(self.policy, "ages", True) and not getattr(self.policy, "strict_order", False)
        self._order = count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._memory: Mapping[str, Any] = base.memory
        self._node_of = {gpu: node.name for node in base.nodes for gpu in node.gpu_ids}
        self._free_since: dict[int, float] = {}
        self._blocked: set[int] = set(base.blocked_gpu_ids)
        self._usage = {key: {user: dict(kinds) for user, kinds in users.items()} for key, users in base.usage.items()}
        self._live = {job.id: Sim(job, self.runs[job.id]) for job in base.jobs}
        self._open = {job.id for job in base.jobs if not job.gpu_ids}
        self._arrived = 0
        self._wakes: set[float] = set()
        self._usable = {gpu: node.type for node in base.nodes if node.schedulable for gpu in node.gpu_ids}
        taken = self._blocked.union(*(job.gpu_ids for job in base.jobs))
        self._free = Counter(kind for gpu, kind in self._usable.items() if gpu not in taken)
        # Rounds kept for those who do not start within the horizon: with a long queue they are dear.
        self._spare = min(self.rounds // 4, max(self.rounds // 16, self.rounds - 3 * len(self._open)))
        self.planned = 0  # rounds
        self._planned_at = -math.inf  # the latest round
        self._plan = Plan()
        self._settle()

    def run(self) -> None:
        """Until all that wait now have started, or the rounds are used up."""
        self._round()
        while self._open and self._events and self.rounds > 0 and not self.stopped():
            first = self._events[0][0]
            self._pass(max(first, min(first + self._gap(), self._edge())))
            if self._due():
                self._round()

    @property
    def stuck(self) -> dict[str, str]:
        """Who has not started though nothing more would happen, or whom a limit kept back: the reason's token."""
        over = self.rounds > 0
        tokens = {key: self._plan.reasons[key].token for key in self._open if key in self._plan.reasons}
        return {key: token for key, token in tokens.items() if over or token.startswith("quota")}

    # Events ----------------------------------------------------------------------------------------

    def _at(self, at: float, call: Callable[[], None]) -> None:
        heappush(self._events, (max(at, self._began_at), next(self._order), call))

    def _pass(self, until: float) -> None:
        while self._events and self._events[0][0] <= until:
            at, _, call = heappop(self._events)
            self.now = max(self.now, at)
            call()

    def _gap(self) -> float:
        """How long events may be apart and still share a round: nothing while there are rounds enough."""
        left = self.rounds - self._spare
        if left > 1.2 * len(self._live):
            return 0.0
        least = self.horizon_s / 50.0
        passed = self.now - self._began_at + least
        if left > 0:
            growth: float = max(1.02, ((self.horizon_s + least) / passed) ** (1.0 / left))
        else:
            growth = max(2.0, ((self._furthest_s() + least) / passed) ** (1.0 / max(1, self.rounds)))
        return passed * (growth - 1.0)

    def _furthest_s(self) -> float:
        """Until the last that is known to come: the end of one that trains, or of a window."""
        ends = [at for at, _, _ in self._events] + [window.end for window in self.base.windows]
        return min(_FURTHEST_S, max([self.now, *ends]) - self._began_at)

    def _due(self) -> bool:
        """Whether a round could move anybody."""
        if not self._keeps:
            return True
        for sim in self._live.values():
            if sim.gang is None and any(
                free >= sim.job.min_gpus for kind, free in self._free.items() if may_use(sim.job, kind)
            ):
                return True
        return False

    def _settle(self) -> None:
        """What is under way when the future begins."""
        for sim in self._live.values():
            job = sim.job
            if job.gpu_ids and job.gang:
                sim.gpus, sim.gang = job.gpu_ids, job.gang
                sim.locked_until = self._locked_until(job)
                self._train(sim, self.now)
        if self._blocked:
            self._at(self.now + 3 * self.times.stop_s, self._unblock(frozenset(self._blocked)))
        self._await_arrival()

    def _locked_until(self, job: Job) -> float:
        if job.state is State.RUNNING:
            return -math.inf
        if job.state is State.RUNNING_PROTECTED and job.protected_until is not None:
            return job.protected_until
        return self.now + self.times.launch_s + self.times.protect_s

    def _await_arrival(self) -> None:
        job = next(self.arrivals, None) if self._arrived < MOST_ARRIVALS else None
        if job is not None:
            self._arrived += 1
            self._at(job.submitted_at, lambda: self._arrive(job))

    def _arrive(self, job: Job) -> None:
        self._live[job.id] = Sim(job, self.draw(job))
        self._await_arrival()

    def _train(self, sim: Sim, since: float) -> None:
        sim.counted_at, sim.rate = since, self._rate(sim)
        sim.epoch += 1
        sim.shown = None
        seconds = sim.left_s()
        if not math.isinf(seconds):
            epoch = sim.epoch

            def end() -> None:
                if sim.epoch == epoch:
                    self._end(sim, since + seconds)

            self._at(since + seconds, end)

    def _rate(self, sim: Sim) -> float:
        gang = sim.gang
        if gang is None or not sim.run.sized:
            return 1.0
        spans = len({self._node_of.get(gpu) for gpu in sim.gpus}) > 1
        return speed_on(sim.job.curves, gang, spans=spans)

    def _end(self, sim: Sim, at: float) -> None:
        self._forget_gpus(sim, at)
        self._release(sim.gpus, at)
        sim.epoch += 1
        del self._live[sim.job.id]

    def _release(self, gpus: Sequence[int], at: float) -> None:
        self._free.update(self._usable[gpu] for gpu in gpus if gpu in self._usable)
        for gpu in gpus:
            self._free_since[gpu] = at

    def _forget_gpus(self, sim: Sim, at: float) -> None:
        """What it held counts as its owner's use."""
        since = sim.job.held_since
        if not self.base.members or since is None or sim.gang is None:
            return
        days = getattr(self.policy.parameters, "half_life_days", None)
        seconds = held(since, at, self.base.usage_at, None if days is None else days * 86_400.0)
        kinds = self._usage.setdefault(sim.job.project, {}).setdefault(sim.job.user, {})
        kinds[sim.gang.type] = kinds.get(sim.gang.type, 0.0) + seconds * sim.gang.count

    def _unblock(self, gpus: frozenset[int]) -> Callable[[], None]:
        def call() -> None:
            self._blocked -= gpus
            self._release(tuple(gpus), self.now)

        return call

    # Rounds ----------------------------------------------------------------------------------------

    def _round(self) -> None:
        self.rounds, self.planned = self.rounds - 1, self.planned + 1
        snapshot = replace(
            self.base,
            now=self.now,
            jobs=tuple([self._show(sim) for sim in self._live.values() if not sim.leaving]),
            memory=self._memory,
            usage=self._usage,
            windows=tuple(window for window in self.base.windows if window.end > self.now),
            blocked_gpu_ids=frozenset(self._blocked),
        )
        plan = self._plan = plan_round(snapshot, self.policy)
        self._memory = plan.memory
        for move in sorted(plan.moves, key=lambda move: move.kind == "start"):
            self._apply(self._live[move.job_id], move)
        self._planned_at = self.now
        at = plan.next_wake_at
        if at is not None and at not in self._wakes:
            self._wakes.add(at)
            self._at(max(at, self._due_again()), lambda: None)

    def _due_again(self) -> float:
        """Until then a policy that asks to be woken again and again is not, lest it be all that the rounds do."""
        return min(self.now + self._gap(), self._edge())

    def _edge(self) -> float:
        """When the next window begins or ends: rounds go by that exactly."""
        edges = (edge for window in self.base.windows for edge in (window.start, window.end) if edge > self.now)
        return min(edges, default=math.inf)

    def _show(self, sim: Sim) -> Job:
        running = sim.gang is not None and self.now >= sim.locked_until
        if sim.shown is not None and (sim.gang is None or (running == (sim.shown.state is State.RUNNING))):
            moved = (self.now - sim.shown_at) * sim.rate
            if sim.gang is None or not self._ages or moved <= _STALE * sim.shown.remaining_steps:
                return sim.shown
        sim.count(self.now)
        state = sim.job.state
        if sim.gang is not None:
            state = State.RUNNING if running else State.RUNNING_PROTECTED
        sim.shown_at = self.now
        sim.shown = sim.as_seen(state, sim.locked_until if state is State.RUNNING_PROTECTED else None)
        return sim.shown

    def _apply(self, sim: Sim, move: Move) -> None:
        times, now = self.times, self.now
        self._free.subtract(self._usable[gpu] for gpu in set(move.gpu_ids).difference(sim.gpus) if gpu in self._usable)
        if move.kind == "start":
            at = self._started_at(sim, move)
            if sim.job.id in self._open:
                self._open.discard(sim.job.id)
                self.starts[sim.job.id] = at
            begins = at + times.launch_s
            sim.job = replace(sim.job, held_since=at)
        else:
            sim.count(now)
            left = set(sim.gpus) - set(move.gpu_ids)
            self._blocked |= left
            self._at(now + times.stop_s, self._unblock(frozenset(left)))
            begins = now + times.stop_s + times.launch_s
        sim.gpus, sim.gang = move.gpu_ids, move.gang
        sim.locked_until = begins + times.protect_s
        sim.shown = None
        if move.gang is None:
            sim.epoch += 1
            sim.leaving = True
            self._at(now + times.stop_s, lambda: self._queue_again(sim))
        else:
            self._train(sim, begins)

    def _started_at(self, sim: Sim, move: Move) -> float:
        """Now, or where events shared the round: when it came or its GPUs became free, whichever was later."""
        since = max(sim.job.submitted_at, *(self._free_since.get(gpu, -math.inf) for gpu in move.gpu_ids))
        return since if self._keeps and since > self._planned_at else self.now

    def _queue_again(self, sim: Sim) -> None:
        sim.leaving, sim.locked_until = False, -math.inf
        sim.job = replace(sim.job, state=State.WAITING_FOR_RESOURCE, held_since=None, has_trained=True)
