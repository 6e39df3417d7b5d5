"""A job in a simulation."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace

from scheduling import domain
from scheduling.domain import WHOLE, Curve, Gang
from scheduling.lifecycle import TRAINING, State
from scheduling.simulator.inputs.trace import TraceJob
from scheduling.throughput.curves import scale

_set = object.__setattr__  # other modules see frozen jobs


@dataclass(slots=True)
class Run:
    """Steps are counted in closed form: `counted` of them at `counted_at`, and `steps_per_s` since."""

    job: TraceJob
    alone: float  # steps/s with the whole cluster to itself
    limits: tuple[str, ...] = ()  # that apply to it
    gpu_milli: int = WHOLE  # thousandths of each GPU that it gets under this policy
    state: State = State.WAITING_FOR_INITIAL_CONTACT
    since: float = 0.0  # when this state was entered
    counted: float = 0.0
    counted_at: float = 0.0
    steps_per_s: float = 0.0
    trained_at: float = 0.0  # steps/s of the latest training
    saved: float = 0.0  # steps of the last checkpoint known to be written
    gpu_ids: tuple[int, ...] = ()  # assigned
    gang: Gang | None = None
    occupied: tuple[int, ...] = ()  # held, from LAUNCHING until the processes are gone
    occupied_since: float = 0.0
    launch_s: float = 0.0
    protected_until: float | None = None
    epoch: int = 0  # guards timers of earlier states
    has_trained: bool = False
    broken: bool = False  # one of its nodes was lost: its processes are gone
    restarts: int = 0
    failures: int = 0
    started_at: float | None = None  # first step
    finished_at: float | None = None
    gpu_seconds: float = 0.0
    cost: float = 0.0
    lost_steps: float = 0.0
    lost_gpu_s: float = 0.0  # GPU seconds that those steps took
    seconds: defaultdict[State, float] = field(default_factory=lambda: defaultdict(float))
    #: True speed over the curve's, per type; what the scheduler knows of it is in `measured`.
    factors: dict[str, float] = field(default_factory=dict)
    measured: set[str] = field(default_factory=set)
    not_before: float | None = None  # not started before this time
    seen: domain.Job | None = None  # as the scheduler last saw it, while still valid

    @property
    def gpus(self) -> float:
        """GPUs held; fractional ones as fractions."""
        return len(self.occupied) * (self.gpu_milli / WHOLE)

    def steps(self, now: float) -> float:
        return min(self.job.total_steps, self.counted + self.steps_per_s * (now - self.counted_at))

    def remaining(self, now: float) -> float:
        return max(0.0, self.job.total_steps - self.steps(now))

    def change_speed(self, now: float, steps_per_s: float) -> None:
        self.counted, self.counted_at, self.steps_per_s = self.steps(now), now, steps_per_s

    def stop(self, now: float, every_s: float | None) -> None:
        """Training ends. It wrote a checkpoint every `every_s` seconds."""
        steps, trained = self.steps(now), now - self.counted_at
        if every_s:
            self.saved = min(steps, self.saved + trained // every_s * every_s * self.steps_per_s)
        self.counted, self.counted_at = steps, now
        self.trained_at, self.steps_per_s = self.steps_per_s, 0.0

    def roll_back(self) -> None:
        """Back to the last checkpoint."""
        lost = self.counted - self.saved
        self.lost_steps += lost
        self.lost_gpu_s += lost / self.trained_at * self.gpus if lost > 0 else 0.0
        self.counted = self.saved

    def curves(self) -> dict[str, Curve]:
        """As the scheduler knows them: true where measured, else from the trace."""
        return {
            kind: replace(scale(curve, self.factors[kind]), source="measured") if kind in self.measured else curve
            for kind, curve in self.job.curves.items()
        }

    def view(self, now: float, checkpoint_s: float, stop_s: float, *, ages: bool = True) -> domain.Job:
        """The job as a round sees it. Without `ages` its steps may be out of date. A snapshot is not used after its
        round, so while the run stays in its state the next round sees the same object with updated steps."""
        seen = self.seen
        if seen is not None:
            if ages and self.steps_per_s:
                steps = self.steps(now)
                _set(seen, "done_steps", steps)
                _set(seen, "remaining_steps", max(0.0, self.job.total_steps - steps))
            return seen
        job, trained = self.job, self.has_trained
        self.seen = domain.Job(
            id=job.id,
            number=job.number,
            project=job.project,
            user=job.user,
            state=self.state,
            submitted_at=job.arrival_s,
            curves=self.curves() if self.measured else job.curves,
            priority=job.priority,
            min_gpus=job.min_gpus,
            max_gpus=job.max_gpus,
            types=job.types,
            remaining_steps=self.remaining(now),
            done_steps=self.steps(now),
            restartable=job.restartable,
            gpu_ids=self.gpu_ids,
            gang=self.gang,
            has_trained=trained,
            launch_s=self.launch_s,
            checkpoint_s=checkpoint_s if trained else 0.0,
            restart_cost_s=self.launch_s + checkpoint_s + stop_s if trained else 0.0,
            protected_until=self.protected_until,
            weight=job.weight,
            ran_s=sum(self.seconds[state] for state in TRAINING) if trained else 0.0,
            held_since=self.occupied_since if self.occupied else None,
            workload=job.model_type,
            limits=self.limits,
            gpu_milli=self.gpu_milli,
            gpu_memory_mib=job.gpu_memory_mib,
            cpu_milli=job.cpu_milli,
            memory_mib=job.memory_mib,
            history=job.history,
            not_before=self.not_before,
        )
        return self.seen
