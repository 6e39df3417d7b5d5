"""Simulates one future of a cluster: running jobs end, new ones arrive, and the scheduler decides.

Rounds are calls of `plan_round` on snapshots like the live ones. If the budget is too small for all events, successive
events share one round, fewer of them the closer they are to now. A job that starts in a shared round counts as started
when its GPUs became free.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import count
from typing import Any

from scheduling.domain import WHOLE, Gang, Job, Move, Plan, Snapshot
from scheduling.domain.gpu_parts import taken as taken_parts
from scheduling.engine.rounds import plan_round
from scheduling.forecast.future_job import Sim, keeps, may_use, speed_on
from scheduling.forecast.run_times import RunTime
from scheduling.lifecycle import State
from scheduling.policies.base import Policy, half_life_s
from scheduling.priority.decay import held

#: Steps and times in a round's snapshot may be out of date by this fraction of what is left.
_STALE = 0.01
#: Arrivals beyond this number are dropped: they would only extend the queue behind.
MOST_ARRIVALS = 300
#: Events per start: an end, and one other event; and how many starts give a better estimate.
_PER_START, _ENOUGH_STARTS = 2.0, 4
#: The first events share rounds as if this fraction of the expected events had passed.
_HEAD_START = 1 / 3
#: This fraction of the budget is reserved for the rest of the future, with this many more rounds.
_RESERVE, _LAST_ROUNDS = 1 / 4, 4
#: Rounds per event under time sharing: GPUs are taken from some jobs, and given to others once those have stopped.
_ROUNDS_OF_A_TURN = 2
#: New jobs arrive until at least this fraction of the budget is used.
_DRAINABLE = 1 / 2


@dataclass(frozen=True, slots=True)
class Times:
    """How long moves take, and how long a launched job is protected."""

    launch_s: float = 20.0
    stop_s: float = 10.0
    protect_s: float = 60.0


@dataclass
class Future:
    """`starts` fills up: when each pending job first gets GPUs."""

    base: Snapshot
    policy: Policy
    runs: Mapping[str, RunTime]
    arrivals: Iterator[Job]
    draw: Callable[[Job], RunTime]
    cost_of: Callable[[int], float]  # of a round with this many jobs
    budget: float  # the total cost allowed for rounds
    times: Times = field(default_factory=Times)
    stopped: Callable[[], bool] = lambda: False
    starts: dict[str, float] = field(default_factory=dict)
    gangs: dict[str, Gang] = field(default_factory=dict)  # of those starts

    def __post_init__(self) -> None:
        base = self.base
        self.now = base.now
        self._began_at = base.now
        self._keeps = keeps(self.policy, base)
        self._ages = self.policy.capabilities.time_dependent and not self.policy.capabilities.strict_order
        self._order = count()
        self._last = _LAST_ROUNDS
        self._left = max(0.0, self.budget - self._last * self.cost_of(len(base.jobs)))
        self._passed = self._middle = 0  # events that could have let a job start
        self._late: set[str] = set()  # jobs that arrived too late for a round that events share
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._memory: Mapping[str, Any] = base.memory
        self._node_of = {gpu: node.name for node in base.nodes for gpu in node.gpu_ids}
        self._boots_s = {node.name: node.boot_s for node in base.nodes if node.boot_s}
        self._up_at: dict[str, float] = {}  # of powered-down nodes, once a launch was sent there
        self._turned = False  # a time-sharing round has ended, or GPUs that change hands are free
        self._draining = False
        #: For free GPUs of a type: since when they are free, and the number of rounds before that.
        self._freed: defaultdict[str, list[tuple[float, int]]] = defaultdict(list)
        self._blocked: set[int] = set(base.blocked_gpu_ids)
        self._others = dict(base.others.gpus)
        self._usage = {key: {user: dict(kinds) for user, kinds in users.items()} for key, users in base.usage.items()}
        self._live = {job.id: Sim(job, self.runs[job.id]) for job in base.jobs}
        self._open = {job.id for job in base.jobs if not job.gpu_ids}
        self._arrived = 0
        self._wakes: set[float] = set()
        self._usable = {gpu: node.type for node in base.nodes if node.schedulable for gpu in node.gpu_ids}
        taken = self._blocked.union(*(job.gpu_ids for job in base.jobs))
        self._free = Counter(kind for gpu, kind in self._usable.items() if gpu not in taken)
        self._taken = taken_parts(base.jobs)  # thousandths of each GPU
        self.planned = 0  # rounds
        self._started_in = 0  # the latest round that started a job pending now
        self.cost = 0.0  # jobs pending now
        self._planned_at = base.now  # the latest round, or the live one before the first
        self._edged_at = -math.inf  # the latest edge of a window in the past
        self._most_ran = sum(bool(job.gpu_ids) for job in base.jobs)
        self._plan = Plan()
        self._settle()

    def run(self) -> None:
        """Until all pending jobs have started, or the budget is used up."""
        self._round()
        while self._open and self._goes_on() and self._affords() and not self.stopped():
            self._pass(self._share())
            if self._due():
                self._round()

    def _goes_on(self) -> bool:
        return bool(self._events) or not math.isinf(self._edge())

    def _affords(self) -> bool:
        return self._last > 0

    def stuck(self) -> dict[str, str]:
        """Jobs that cannot start although no event is left, or that a limit blocks: the reason's token."""
        over = self._affords() and not self._goes_on()  # ended neither by its budget nor by the emergency brake
        tokens = {key: self._plan.reasons[key].token for key in self._open if key in self._plan.reasons}
        return {key: token for key, token in tokens.items() if over or token.startswith("quota")}

    # Events ----------------------------------------------------------------------------------------

    def _at(self, at: float, call: Callable[[], None]) -> None:
        heappush(self._events, (max(at, self._began_at), next(self._order), call))

    def _pass(self, events: int) -> None:
        """Process events until this many could let a job start, all of the same moment together, and none beyond the
        edge of a window.

        Under time sharing with a start at each turn, no turn is skipped.
        """
        edge, goal, self._middle = self._edge(), self._passed + events, self._passed + (events + 1) // 2
        starting = self.planned - self._started_in < _ROUNDS_OF_A_TURN
        by_turns, self._turned = self.policy.capabilities.shares_time and events > 1 and starting, False

        def more() -> bool:
            return not self._turned if by_turns else self._passed < goal

        while self._events and self._events[0][0] <= (edge if more() else self.now):
            at, _, call = heappop(self._events)
            self.now = max(self.now, at)
            call()
        if more() and not math.isinf(edge):
            self.now = self._edged_at = edge

    def _share(self) -> int:
        """How many events share the next round: one while the budget allows it, and never more than can end before
        it."""
        running = sum(sim.gang is not None for sim in self._live.values())
        self._most_ran = max(self._most_ran, running)
        if self._drains(running):
            return max(1, running)
        rounds = self._left / self.cost_of(len(self._live)) + self._last - len(self._edges())
        started = len(self.starts)
        each = (self._passed + _PER_START * _ENOUGH_STARTS) / (started + _ENOUGH_STARTS)
        expected = each * len(self._open)
        if self._left < _RESERVE * self.budget:
            expected = 2.0 * (len(self._live) + MOST_ARRIVALS - self._arrived)
        if expected <= rounds:
            return 1
        passed = self._passed + _HEAD_START * (self._passed + expected)
        growth: float = (1.0 + expected / passed) ** (1.0 / max(1.0, rounds))
        share = max(1, int(passed * (growth - 1.0)))
        return min(share, running) if running else share

    def _drains(self, running: int) -> bool:
        """Whether the budget is only just enough to start the present jobs, with as many per round as are running: then
        no jobs arrive."""
        if not self._draining and self._left < _DRAINABLE * self.budget:
            waiting = 2 * len(self._open) if self.policy.capabilities.shares_time else len(self._live) - running
            rounds = waiting / max(1, self._most_ran)
            self._draining = self._left < rounds * self.cost_of(len(self._live))
        return self._draining

    def _due(self) -> bool:
        """Whether a round could move any job."""
        if not self._keeps:
            return True
        return any(sim.gang is None and self._fits(sim.job) for sim in self._live.values())

    def _fits(self, job: Job) -> bool:
        if any(free >= job.min_gpus and may_use(job, kind) for kind, free in self._free.items()):
            return True
        return job.gpu_milli < WHOLE and job.gpu_milli <= WHOLE - min(filter(None, self._taken.values()), default=0)

    def _settle(self) -> None:
        """Complete what is under way when the future begins."""
        for sim in self._live.values():
            job = sim.job
            if job.gpu_ids and job.gang:
                sim.gpus, sim.gang = job.gpu_ids, job.gang
                sim.locked_until = self._locked_until(job)
                self._train(sim, self._up(sim.gpus, self.now))
        soon = self.now + 3 * self.times.stop_s
        if leaving := frozenset(self._blocked - self._others.keys()):
            self._at(soon, self._unblock(leaving))
        ends = {*self._others.values(), *(one.until for node in self.base.nodes for one in node.others)}
        for until in ends - {None}:
            assert until is not None
            self._at(max(until, soon), self._end_others(until))
        self._await_arrival()

    def _locked_until(self, job: Job) -> float:
        if job.state is State.RUNNING:
            return -math.inf
        if job.state is State.RUNNING_PROTECTED and job.protected_until is not None:
            return job.protected_until
        return self.now + self.times.launch_s + self.times.protect_s

    def _await_arrival(self) -> None:
        job = next(self.arrivals, None) if self._arrived < MOST_ARRIVALS and not self._draining else None
        if job is not None:
            self._arrived += 1
            self._at(job.submitted_at, lambda: self._arrive(job))

    def _arrive(self, job: Job) -> None:
        self._live[job.id] = Sim(job, self.draw(job))
        self._passed += not self._keeps or self._fits(job)
        if self._passed > self._middle:  # most of what shares the round happened before it
            self._late.add(job.id)
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
        self._release(self._vacate(sim, sim.gpus), at)
        sim.epoch += 1
        del self._live[sim.job.id]

    def _vacate(self, sim: Sim, gpus: Collection[int]) -> list[int]:
        """Free the job's GPUs that no other job shares."""
        self._taken.subtract(dict.fromkeys(gpus, sim.job.gpu_milli))
        return [gpu for gpu in gpus if not self._taken[gpu]]

    def _unused(self, gpus: Iterable[int]) -> int:
        return sum(not self._taken[gpu] for gpu in gpus)

    def _occupy(self, sim: Sim, gpus: Collection[int]) -> None:
        self._free.subtract(kind for gpu in gpus if not self._taken[gpu] and (kind := self._usable.get(gpu)))
        self._taken.update(dict.fromkeys(gpus, sim.job.gpu_milli))

    def _release(self, gpus: Sequence[int], at: float) -> None:
        self._passed += 1
        self._free.update(self._usable[gpu] for gpu in gpus if gpu in self._usable)
        for gpu in gpus:
            if gpu in self._usable:
                heappush(self._freed[self._usable[gpu]], (at, self.planned))

    def _forget_gpus(self, sim: Sim, at: float) -> None:
        """Count the GPUs that it held as its owner's use."""
        since = sim.job.held_since
        if not self.base.members or since is None or sim.gang is None:
            return
        seconds = held(since, at, self.base.usage_at, half_life_s(self.policy.parameters))
        kinds = self._usage.setdefault(sim.job.project, {}).setdefault(sim.job.user, {})
        kinds[sim.gang.type] = kinds.get(sim.gang.type, 0.0) + seconds * sim.gang.count * sim.job.gpu_milli / WHOLE

    def _unblock(self, gpus: frozenset[int]) -> Callable[[], None]:
        def call() -> None:
            self._blocked -= gpus
            self._turned = True
            self._release(tuple(gpus), self.now)

        return call

    def _end_others(self, until: float) -> Callable[[], None]:
        """End the engine's other jobs that are due by then."""

        def call() -> None:
            gpus = frozenset(gpu for gpu, at in self._others.items() if at == until)
            self._others = {gpu: at for gpu, at in self._others.items() if gpu not in gpus}
            nodes = (
                replace(node, others=tuple(one for one in node.others if one.until != until)) if node.others else node
                for node in self.base.nodes
            )
            self.base = replace(self.base, nodes=tuple(nodes))
            self._unblock(gpus)()

        return call

    # Rounds ----------------------------------------------------------------------------------------

    def _round(self) -> None:
        cost = self.cost_of(len(self._live))
        self._last -= self._left < cost
        self._left = max(0.0, self._left - cost)
        self.cost += cost
        self.planned += 1
        here = [sim for key, sim in self._live.items() if not sim.leaving and key not in self._late]
        snapshot = replace(
            self.base,
            now=self.now,
            jobs=tuple([self._show(sim) for sim in here]),
            memory=self._memory,
            usage=self._usage,
            windows=tuple(window for window in self.base.windows if window.end > self.now),
            blocked_gpu_ids=frozenset(self._blocked),
            others=replace(self.base.others, gpus=self._others),
        )
        plan = self._plan = plan_round(snapshot, self.policy)
        self._memory = plan.memory
        for move in sorted(plan.moves, key=lambda move: move.kind == "start"):
            self._apply(self._live[move.job_id], move)
        self._planned_at = self.now
        self._late.clear()
        at = plan.next_wake_at
        if at is not None and at not in self._wakes:
            self._wakes.add(at)
            self._at(at, self._count)

    def _count(self) -> None:
        self._passed += not self._draining
        self._turned = True

    def _edge(self) -> float:
        """When the next window begins or ends: rounds do not skip that time."""
        return min(self._edges(), default=math.inf)

    def _edges(self) -> set[float]:
        return {edge for window in self.base.windows for edge in (window.start, window.end) if edge > self.now}

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
        if move.kind == "start":
            at = self._up(move.gpu_ids, self._started_at(sim, move))
            if sim.job.id in self._open and move.gang is not None:
                self._open.discard(sim.job.id)
                self.starts[sim.job.id], self._started_in = at, self.planned
                self.gangs[sim.job.id] = move.gang
            begins = at + times.launch_s
            sim.job = replace(sim.job, held_since=at)
            self._occupy(sim, move.gpu_ids)
        else:
            more = set(move.gpu_ids).difference(sim.gpus)
            if move.gang is not None:
                self._take(move.gang.type, self._unused(more))
            self._occupy(sim, more)
            sim.count(now)
            left = set(self._vacate(sim, set(sim.gpus) - set(move.gpu_ids)))
            self._blocked |= left
            self._at(now + times.stop_s, self._unblock(frozenset(left)))
            begins = self._up(move.gpu_ids, now + times.stop_s) + times.launch_s
        sim.gpus, sim.gang = move.gpu_ids, move.gang
        sim.locked_until = begins + times.protect_s
        sim.shown = None
        if move.gang is None:
            sim.epoch += 1
            sim.leaving = True
            ends = move.reason.detail.get("mode") == "cancel"
            self._at(now + times.stop_s, lambda: self._forget(sim) if ends else self._queue_again(sim))
        else:
            self._train(sim, begins)

    def _up(self, gpus: Iterable[int], at: float) -> float:
        """`at`, or when the last of these nodes is up; powered-down ones are woken then."""
        for name in {self._node_of.get(gpu, "") for gpu in gpus} & self._boots_s.keys() if self._boots_s else ():
            at = max(at, self._up_at.setdefault(name, at + self._boots_s[name]))
        return at

    def _started_at(self, sim: Sim, move: Move) -> float:
        """Now; if events shared the round, when the job arrived or its GPUs became free, whichever was later."""
        if self.policy.capabilities.shares_time or move.gang is None:
            return self.now
        taken = self._take(move.gang.type, self._unused(move.gpu_ids))
        first = max(sim.job.submitted_at, sim.job.not_before or -math.inf, self._edged_at)
        since = max([first, *(at for at, _ in taken)])
        news = since > self._planned_at or any(rounds == self.planned - 1 for _, rounds in taken)
        return since if news else self.now

    def _take(self, kind: str, count: int) -> list[tuple[float, int]]:
        """Since when the assigned GPUs of a type have been free, as far as known.

        When events share a round, the particular GPUs of a job mean little: jobs ahead take the first ones.
        """
        freed = self._freed[kind]
        always = self._free[kind] - len(freed)
        return [heappop(freed) for _ in range(min(len(freed), max(0, count - always)))]

    def _forget(self, sim: Sim) -> None:
        del self._live[sim.job.id]

    def _queue_again(self, sim: Sim) -> None:
        sim.leaving, sim.locked_until = False, -math.inf
        sim.job = replace(sim.job, state=State.WAITING_FOR_RESOURCE, held_since=None, has_trained=True)
