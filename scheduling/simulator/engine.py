"""A cluster in simulated time under the production scheduler: the same `plan_round`, the same states.

Steps are counted in closed form between events; a round runs only after a change that it could react to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush

from scheduling.domain import WHOLE, Move, Plan
from scheduling.lifecycle import QUEUED, TRAINING, Event, State, advance
from scheduling.policies.base import Policy, half_life_s, protection_factor
from scheduling.policies.capabilities import Needs
from scheduling.simulator.clock import Clock
from scheduling.simulator.failures import Failures
from scheduling.simulator.gpu_sharing.neighbours import Neighbours
from scheduling.simulator.holdings import Holdings
from scheduling.simulator.inputs.limits import binding
from scheduling.simulator.inputs.trace import Cluster, TraceJob, sizes, speed_alone
from scheduling.simulator.meter import Meter
from scheduling.simulator.noise import draw_factors
from scheduling.simulator.outcome import Options, Outcome
from scheduling.simulator.run import Run
from scheduling.simulator.shares import NoShares, Shares
from scheduling.simulator.skip_idle_rounds import sight_of

#: Rounds in a row in which all jobs queue on an idle cluster; after that no job will ever start.
_HOPELESS = 50


class Engine:
    def __init__(
        self, jobs: Sequence[TraceJob], cluster: Cluster, policy: Policy, seed: int = 0, options: Options | None = None
    ) -> None:
        self.options = options or Options(seed)
        self.cluster, self.policy, self.seed = cluster, policy, self.options.seed
        self.clock = Clock()
        self.nodes = cluster.nodes
        self.size_of = sizes(cluster.nodes)
        self.runs = [self._run_of(job) for job in jobs]
        self.arrivals = sorted(self.runs, key=lambda run: run.job.arrival_s)
        self.arrived = self.ended = 0
        self.live: dict[str, Run] = {}
        self.standby: dict[str, Run] = {}
        self.occupied = Holdings()
        self.assigned = Holdings()
        self.memory: dict[str, object] = {}
        self.asked = False  # a round is due now, or as soon as the interval between rounds allows
        apart = policy.capabilities.elastic or policy.capabilities.runs_to_completion
        self.gap_s = self.options.coalesce_s if apart else 0.0
        self.open_at = float("-inf")  # earliest time of the next round
        self.wakes: set[float] = set()  # times at which a round is due anyway
        self.protections: set[float] = set()  # ends of protection; they wake the scheduler themselves
        self.ends: list[tuple[float, int, int, Run]] = []  # when trainings end, including those of earlier epochs
        self.next_wake_at: float | None = None  # of the latest plan
        self.hopeless = 0
        start = min((job.arrival_s for job in jobs), default=0.0)
        self.meter = Meter(start)
        self.outcome = Outcome(self.runs, self.meter, start)
        self.node_of = {gpu: node.name for node in cluster.nodes for gpu in node.gpu_ids}
        self.price_of = {node.name: cluster.price_per_gpu_hour.get(node.type, 0.0) for node in cluster.nodes}
        self.protection = protection_factor(policy.parameters)
        self.shares = _shares(self, start)
        self.sight = sight_of(self)
        self.failures = Failures(self)
        self.neighbours = Neighbours(self)
        self.outcome.usage = self.neighbours.usage

    def _run_of(self, job: TraceJob) -> Run:
        alone = speed_alone(job, self.size_of, self.cluster.multi_node)
        shares = self.policy.capabilities.places_gpu_parts and not self.policy.capabilities.exclusive_gpus
        part = job.gpu_milli if shares else WHOLE
        return Run(job, alone, binding(self.cluster.limits, job.project), part)

    def run(self) -> Outcome:
        self._await_arrivals()
        self.failures.start()
        self.clock.run(self._stopped_from_outside)
        last = max((run.finished_at for run in self.runs if run.finished_at is not None), default=self.meter.at)
        self.outcome.end = max(last, self.clock.now) if self.outcome.interrupted else last
        return self.outcome

    def _stopped_from_outside(self) -> bool:
        progress = self.options.progress
        if progress is not None and progress(self.ended):
            self.outcome.interrupted = True
            self.meter.advance(self.clock.now)
        return self.outcome.interrupted

    @property
    def is_over(self) -> bool:
        """Nothing will change any more except failures of nodes."""
        if self.arrived < len(self.arrivals):
            return False
        return not self.live or self.hopeless > _HOPELESS

    # Rounds ----------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Request a round now, or as soon as the interval between rounds allows; events until then share it."""
        if not self.asked:
            self.asked = True
            self.clock.after(max(0.0, self.open_at - self.clock.now), self._round)

    def _round(self) -> None:
        self.asked = False
        if not self.live:
            return
        plan = self.sight.plan()
        if plan is None:
            return
        self.outcome.rounds += 1
        self.open_at = self.clock.now + self.gap_s
        self.outcome.fallbacks += "solver_failed" in plan.figures
        self.memory = dict(plan.memory)
        self._apply_all(plan.moves)
        self.launch_ready()
        if plan.moves or any(run.state not in QUEUED for run in self.live.values()):
            self.hopeless = 0
        elif not self.failures.down:
            self.hopeless += 1
        self._wake_later(plan)

    def _wake_later(self, plan: Plan) -> None:
        """Run a round when the plan asked for one, whatever happens in between."""
        at, now = plan.next_wake_at, self.clock.now
        self.next_wake_at = at
        if at is None or at in self.wakes or at in self.protections or self.is_over:
            return
        if at > now:
            self.wakes.add(at)
            self.clock.after(at - now, lambda: self._awake(at))
        elif any(move.kind == "preempt" for move in plan.moves):
            self.wake()

    def _awake(self, at: float) -> None:
        self.wakes.discard(at)
        self.wake()

    def next_end_s(self) -> float | None:
        """Seconds to the next end of a training, if nothing else happens."""
        while self.ends and (self.ends[0][3].epoch != self.ends[0][2] or not self.ends[0][3].steps_per_s):
            heappop(self.ends)
        return max(0.0, self.ends[0][0] - self.clock.now) if self.ends else None

    # Events of a job ---------------------------------------------------------------------------------

    def move(self, run: Run, event: Event) -> None:
        now = self.clock.now
        self.meter.advance(now)
        run.seconds[run.state] += now - run.since
        run.state, run.since = advance(run.state, event), now
        run.epoch += 1
        run.seen = None

    def after(self, run: Run, seconds: float, call: Callable[[Run], None]) -> None:
        """Call `call` later, unless the run has left its present state by then."""
        epoch = run.epoch

        def due() -> None:
            if run.epoch == epoch:
                call(run)

        self.clock.after(seconds, due)

    def _await_arrivals(self) -> None:
        if self.arrived < len(self.arrivals):
            self.clock.after(self.arrivals[self.arrived].job.arrival_s - self.clock.now, self._arrive)

    def _arrive(self) -> None:
        """All jobs that arrive at this time."""
        now, due = self.clock.now, self.arrivals[self.arrived].job.arrival_s
        self.meter.advance(now)
        while self.arrived < len(self.arrivals) and self.arrivals[self.arrived].job.arrival_s <= due:
            run = self.arrivals[self.arrived]
            self.arrived += 1
            run.since = run.counted_at = now
            if self.options.noise:
                run.factors = draw_factors(run.job, self.options.noise, self.seed)
            self.live[run.job.id] = run
            self.meter.live += 1
            self.move(run, Event.ACCEPTED)
            self.sight.queued(run)
            if self.sight.is_due(run):
                self.wake()
        self._await_arrivals()

    def _apply_all(self, moves: Sequence[Move]) -> None:
        """Releases are applied before starts."""
        for move in moves:
            run = self.live[move.job_id]
            self.assigned.give_back(run.gpu_ids, run.gpu_milli)
        for move in sorted(moves, key=lambda move: move.kind == "start"):
            self._apply(self.live[move.job_id], move)

    def _apply(self, run: Run, move: Move) -> None:
        run.gpu_ids, run.gang = move.gpu_ids, move.gang
        self.assigned.take(move.gpu_ids, run.gpu_milli)
        self.sight.taken(move.gpu_ids)
        if move.kind == "start":
            self.move(run, Event.ASSIGNED)
            self.standby[run.job.id] = run
        elif run.state is State.STANDBY:  # GPUs that the job was to have left
            self.standby.pop(run.job.id)
            self.move(run, Event.UNASSIGNED)
        else:
            self.stop_training(run)
            self.move(run, Event.REALLOCATED)
            self._forget_protection(run)
            self.after(run, 0.0 if run.broken else self.cluster.checkpoint_s, self._checkpointed)

    def launch_ready(self) -> None:
        for run in list(self.standby.values()):
            if self.occupied.has_room(run.gpu_ids, run.gpu_milli) and not self.failures.hits(run.gpu_ids):
                del self.standby[run.job.id]
                self.move(run, Event.GPUS_FREE)
                run.occupied, run.occupied_since = run.gpu_ids, self.clock.now
                self.occupied.take(run.occupied, run.gpu_milli)
                run.restarts += run.has_trained
                run.launch_s = self.cluster.launch_s
                self.after(run, run.launch_s, self._first_step)

    def _first_step(self, run: Run) -> None:
        now = self.clock.now
        self.move(run, Event.FIRST_STEP_READY)
        run.has_trained = True
        if run.started_at is None:
            run.started_at = now
        run.change_speed(now, self._speed(run))
        run.saved = run.counted
        self.meter.train(len(run.occupied) * run.gpu_milli, self._share(run), 1)
        protected = self.protection * run.launch_s
        run.protected_until = now + protected
        ends_in = self._expect_end(run)
        self.protections.add(run.protected_until)
        if ends_in is None or protected <= ends_in:
            self.after(run, protected, self._unprotect)
        self._expect_measurement(run)
        self.neighbours.begins(run)

    def _expect_end(self, run: Run) -> float | None:
        if run.steps_per_s <= 0:
            return None
        seconds = run.remaining(self.clock.now) / run.steps_per_s
        self.after(run, seconds, self._done)
        if self.policy.capabilities.elastic:  # other policies do not ask for the next end
            heappush(self.ends, (self.clock.now + seconds, run.job.number, run.epoch, run))
        return seconds

    def _speed(self, run: Run) -> float:
        """f on its actual GPUs: a gang that spans nodes is slower."""
        assert run.gang is not None
        curve = run.job.curves[run.gang.type]
        spans = len({self.node_of[gpu] for gpu in run.gpu_ids}) > 1
        speed = curve.at(run.gang.count) * (curve.spread_at(run.gang.count) if spans else 1.0)
        return speed * run.factors.get(run.gang.type, 1.0)

    def _expect_measurement(self, run: Run) -> None:
        """With noise, the true speed on a type is known after training there for `measure_s`."""
        kind = run.gang.type if run.gang else ""
        if kind not in run.factors or kind in run.measured:
            return
        launch = run.saved, run.restarts

        def due() -> None:
            if (run.saved, run.restarts) == launch and run.steps_per_s:
                run.measured.add(kind)
                self.wake()

        self.clock.after(self.cluster.measure_s, due)

    def _unprotect(self, run: Run) -> None:
        self.move(run, Event.PROTECTION_ENDED)
        due = self.policy.capabilities.elastic or run.protected_until == self.next_wake_at
        self._forget_protection(run)
        self._expect_end(run)
        if due and self.sight.unprotected():  # only policies that resize protect jobs
            self.wake()

    def _forget_protection(self, run: Run) -> None:
        at, now = run.protected_until, self.clock.now
        if at is None:
            return
        self.protections.discard(at)
        run.protected_until = None
        if at == self.next_wake_at and at > now:  # its end was to wake the round that is due then
            self.clock.after(at - now, lambda: self.wake() if at == self.next_wake_at else None)

    def stop_training(self, run: Run) -> None:
        if run.state in TRAINING and not run.broken:
            now = self.clock.now
            self.meter.advance(now)
            self.meter.train(len(run.occupied) * run.gpu_milli, self._share(run), -1)
            run.stop(now, run.job.checkpoint_every_s or self.cluster.checkpoint_every_s)
            self.neighbours.ends(run)

    def _share(self, run: Run) -> float:
        return run.steps_per_s / run.alone if run.alone else 0.0

    def _checkpointed(self, run: Run) -> None:
        self.move(run, Event.CHECKPOINTED)
        run.saved = run.counted
        self.after(run, 0.0 if run.broken else self.cluster.stop_s, self._stopped)

    def _stopped(self, run: Run) -> None:
        left = [gpu for gpu in run.occupied if gpu not in self.assigned.gpus]
        self.release(run)
        self.sight.given(left)
        run.broken = False
        if run.gpu_ids:
            self.move(run, Event.STOPPED_REASSIGNED)
            self.standby[run.job.id] = run
            if self.failures.hits(run.gpu_ids):
                self.wake()
        else:
            self.move(run, Event.STOPPED_EMPTY)
            self.sight.queued(run)
        self.launch_ready()
        if (left or not run.gpu_ids) and self.sight.is_due(None):
            self.wake()

    def _done(self, run: Run) -> None:
        self.stop_training(run)
        self.move(run, Event.STEPS_DONE)
        run.counted, run.finished_at = run.job.total_steps, self.clock.now
        self.release(run)
        self.assigned.give_back(run.gpu_ids, run.gpu_milli)
        self.sight.given(run.gpu_ids)
        self._forget_protection(run)
        run.gpu_ids, run.gang = (), None
        del self.live[run.job.id]
        self.meter.live -= 1
        self.ended += 1
        self.launch_ready()
        if self.sight.is_due(None):
            self.wake()

    def release(self, run: Run) -> None:
        now = self.clock.now
        held = now - run.occupied_since
        self.shares.add(run, now)
        run.gpu_seconds += held * run.gpus
        part = run.gpu_milli / WHOLE
        run.cost += sum(part * held / 3600.0 * self.price_of[self.node_of[gpu]] for gpu in run.occupied)
        if self.options.keep_holds and run.occupied:
            self.outcome.holds.append((run.job.number, run.occupied, run.occupied_since, now))
        self.occupied.give_back(run.occupied, run.gpu_milli)
        run.occupied = ()


def _shares(engine: Engine, start: float) -> Shares:
    if Needs.FAIR_SHARE not in engine.policy.capabilities.needs:
        return NoShares()
    return Shares(engine.runs, engine.nodes, half_life_s(engine.policy.parameters), start)
