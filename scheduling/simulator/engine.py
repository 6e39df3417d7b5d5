"""A cluster in simulated time under the production scheduler: the same `plan_round`, the same states.

Steps are counted in closed form between events; a round runs only when something has changed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from scheduling import domain
from scheduling.domain import Gang, Move, Plan, Snapshot
from scheduling.lifecycle import LIVE, TRAINING, Event, State, advance
from scheduling.policies.base import Policy
from scheduling.rounds import plan_round
from scheduling.simulator.clock import Clock
from scheduling.simulator.trace import Cluster, TraceJob, speeds_alone

LAUNCHING_DELAY = frozenset({State.STANDBY, State.LAUNCHING, State.CHECKPOINTING, State.STOPPING})


@dataclass(slots=True)
class Run:
    """One job on its way."""

    job: TraceJob
    alone: float  # steps/s with the whole cluster to itself
    state: State = State.WAITING_FOR_INITIAL_CONTACT
    since: float = 0.0  # when this state was entered
    steps: float = 0.0
    steps_per_s: float = 0.0
    gpu_ids: tuple[int, ...] = ()  # assigned
    gang: Gang | None = None
    occupied: tuple[int, ...] = ()  # held, from LAUNCHING until the processes are gone
    occupied_since: float = 0.0
    launch_s: float = 0.0
    protected_until: float | None = None
    epoch: int = 0  # guards timers of earlier states
    has_trained: bool = False
    restarts: int = 0
    finished_at: float | None = None
    seconds: defaultdict[State, float] = field(default_factory=lambda: defaultdict(float))

    @property
    def remaining(self) -> float:
        return max(0.0, self.job.total_steps - self.steps)


@dataclass(frozen=True, slots=True)
class Level:
    """What held between two events."""

    seconds: float
    training_gpus: int
    live: int
    variance: float | None  # of relative throughput over training jobs


@dataclass(slots=True)
class Outcome:
    runs: list[Run]
    levels: list[Level]
    gpu_seconds: dict[str, float]
    rounds: int
    first_arrival: float
    end: float
    live_integral: list[tuple[float, float]]  # (time, integral of live jobs up to then)


class Engine:
    def __init__(self, jobs: Sequence[TraceJob], cluster: Cluster, policy: Policy, seed: int = 0) -> None:
        self.cluster, self.policy, self.seed = cluster, policy, seed
        self.clock = Clock()
        self.runs = [Run(job, max(speeds_alone(job, cluster).values(), default=0.0)) for job in jobs]
        self.live: dict[str, Run] = {}
        self.occupied: set[int] = set()
        self.memory: dict[str, object] = {}
        self.asked = False  # a round is due at this moment
        self.woken_for: float | None = None
        start = min(job.arrival_s for job in jobs)
        self.outcome = Outcome(self.runs, [], {}, 0, start, 0.0, [(start, 0.0)])
        self.at = self.outcome.first_arrival
        node_of = [(gpu, node) for node in cluster.nodes for gpu in node.gpu_ids]
        self.node_of = {gpu: node.name for gpu, node in node_of}
        self.type_of = {gpu: node.type for gpu, node in node_of}
        settings: object = policy.parameters
        self.protection = float(getattr(settings, "protection_factor", 3.0))

    def run(self) -> Outcome:
        for run in self.runs:
            self.clock.after(run.job.arrival_s, lambda run=run: self._arrive(run))  # type: ignore[misc]
        self.clock.run()
        self.outcome.end = max((run.finished_at for run in self.runs if run.finished_at is not None), default=self.at)
        return self.outcome

    # Rounds ----------------------------------------------------------------------------------------

    def _wake(self) -> None:
        """Ask for a round at this moment; events of one moment share one."""
        if not self.asked:
            self.asked = True
            self.clock.after(0.0, self._round)

    def _round(self) -> None:
        self.asked = False
        if not self.live:
            return
        self._account()
        plan = plan_round(self._snapshot(), self.policy)
        self.outcome.rounds += 1
        self.memory = dict(plan.memory)
        for move in sorted(plan.moves, key=lambda move: move.kind == "start"):
            self._apply(self.live[move.job_id], move)
        self._launch_ready()
        self._wake_later(plan)

    def _wake_later(self, plan: Plan) -> None:
        """Protection ends by its own timer, so only other wishes need one."""
        at, now = plan.next_wake_at, self.clock.now
        ends = {run.protected_until for run in self.live.values()}
        if at is not None and at > now and at not in ends and at != self.woken_for:
            self.woken_for = at
            self.clock.after(at - now, self._wake)

    def _snapshot(self) -> Snapshot:
        assigned = {gpu for run in self.live.values() for gpu in run.gpu_ids}
        training = [run for run in self.live.values() if run.state in TRAINING and run.steps_per_s]
        ends = [run.remaining / run.steps_per_s for run in training]
        return Snapshot(
            now=self.clock.now,
            nodes=self.cluster.nodes,
            jobs=tuple(self._view(run) for run in self.live.values()),
            seed=self.seed,
            memory=self.memory,
            next_event_s=min(ends, default=None),
            settings={"multi_node": self.cluster.multi_node},
            blocked_gpu_ids=frozenset(self.occupied - assigned),
        )

    def _view(self, run: Run) -> domain.Job:
        job, cluster = run.job, self.cluster
        restart = run.launch_s + cluster.checkpoint_s + cluster.stop_s if run.has_trained else 0.0
        return domain.Job(
            id=job.id,
            number=job.number,
            project=job.project,
            state=run.state,
            submitted_at=job.arrival_s,
            curves=job.curves,
            priority=job.priority,
            min_gpus=job.min_gpus,
            max_gpus=job.max_gpus,
            types=job.types,
            remaining_steps=run.remaining,
            restartable=job.restartable,
            gpu_ids=run.gpu_ids,
            gang=run.gang,
            has_trained=run.has_trained,
            launch_s=run.launch_s,
            checkpoint_s=cluster.checkpoint_s if run.has_trained else 0.0,
            restart_cost_s=restart,
            protected_until=run.protected_until,
        )

    # What happens to a job -------------------------------------------------------------------------

    def _move(self, run: Run, event: Event) -> None:
        now = self.clock.now
        self._account()
        run.seconds[run.state] += now - run.since
        run.state, run.since = advance(run.state, event), now
        run.epoch += 1

    def _in(self, run: Run, seconds: float, event: Event) -> None:
        """`event`, unless the run has left its present state by then."""
        epoch = run.epoch

        def due() -> None:
            if run.epoch == epoch:
                _DUE[event](self, run)

        self.clock.after(seconds, due)

    def _arrive(self, run: Run) -> None:
        self._account()
        run.since = self.clock.now
        self.live[run.job.id] = run
        self._move(run, Event.ACCEPTED)
        self._wake()

    def _apply(self, run: Run, move: Move) -> None:
        run.gpu_ids, run.gang = move.gpu_ids, move.gang
        if move.kind == "start":
            self._move(run, Event.ASSIGNED)
            return
        self._move(run, Event.REALLOCATED)
        run.steps_per_s, run.protected_until = 0.0, None
        self._in(run, self.cluster.checkpoint_s, Event.CHECKPOINTED)

    def _launch_ready(self) -> None:
        for run in self.live.values():
            if run.state is State.STANDBY and self.occupied.isdisjoint(run.gpu_ids):
                self._move(run, Event.GPUS_FREE)
                run.occupied, run.occupied_since = run.gpu_ids, self.clock.now
                self.occupied.update(run.occupied)
                run.restarts += run.has_trained
                run.launch_s = self.cluster.launch_s
                self._in(run, run.launch_s, Event.FIRST_STEP_READY)

    def _first_step(self, run: Run) -> None:
        self._move(run, Event.FIRST_STEP_READY)
        run.has_trained, run.steps_per_s = True, self._speed(run)
        protected = self.protection * run.launch_s
        run.protected_until = self.clock.now + protected
        self._in(run, protected, Event.PROTECTION_ENDED)
        self._expect_end(run)

    def _expect_end(self, run: Run) -> None:
        if run.steps_per_s > 0:
            self._in(run, run.remaining / run.steps_per_s, Event.STEPS_DONE)

    def _speed(self, run: Run) -> float:
        """f on the GPUs it really has: a gang that spans nodes is slower."""
        assert run.gang is not None
        curve = run.job.curves[run.gang.type]
        spans = len({self.node_of[gpu] for gpu in run.gpu_ids}) > 1
        return curve.at(run.gang.count) * (curve.spread_factor if spans else 1.0)

    def _unprotect(self, run: Run) -> None:
        self._move(run, Event.PROTECTION_ENDED)
        run.protected_until = None
        self._expect_end(run)
        self._wake()

    def _checkpointed(self, run: Run) -> None:
        self._move(run, Event.CHECKPOINTED)
        self._in(run, self.cluster.stop_s, Event.STOPPED_REASSIGNED)

    def _stopped(self, run: Run) -> None:
        self._release(run)
        if run.gpu_ids:
            self._move(run, Event.STOPPED_REASSIGNED)
        else:
            self._move(run, Event.STOPPED_EMPTY)
            self._wake()
        self._launch_ready()

    def _done(self, run: Run) -> None:
        self._move(run, Event.STEPS_DONE)
        run.steps, run.finished_at, run.steps_per_s = run.job.total_steps, self.clock.now, 0.0
        self._release(run)
        run.gpu_ids, run.gang = (), None
        del self.live[run.job.id]
        self._launch_ready()
        self._wake()

    def _release(self, run: Run) -> None:
        held = self.clock.now - run.occupied_since
        for gpu in run.occupied:
            kind = self.type_of[gpu]
            self.outcome.gpu_seconds[kind] = self.outcome.gpu_seconds.get(kind, 0.0) + held
        self.occupied.difference_update(run.occupied)
        run.occupied = ()

    # Accounting ------------------------------------------------------------------------------------

    def _account(self) -> None:
        """Count steps, and what held, since the last event."""
        now = self.clock.now
        seconds, self.at = now - self.at, now
        if seconds <= 0:
            return
        training = [run for run in self.live.values() if run.state in TRAINING]
        for run in training:
            run.steps += run.steps_per_s * seconds
        gpus = sum(len(run.gpu_ids) for run in training)
        live = sum(run.state in LIVE for run in self.live.values())
        self.outcome.levels.append(Level(seconds, gpus, live, self._variance(training)))
        self.outcome.live_integral.append((now, self.outcome.live_integral[-1][1] + live * seconds))

    def _variance(self, training: list[Run]) -> float | None:
        if not training:
            return None
        shares = [run.steps_per_s / run.alone for run in training]
        mean = sum(shares) / len(shares)
        return sum((share - mean) ** 2 for share in shares) / len(shares)


_DUE = {
    Event.FIRST_STEP_READY: Engine._first_step,
    Event.PROTECTION_ENDED: Engine._unprotect,
    Event.CHECKPOINTED: Engine._checkpointed,
    Event.STOPPED_REASSIGNED: Engine._stopped,
    Event.STEPS_DONE: Engine._done,
}
