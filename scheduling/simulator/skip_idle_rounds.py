"""Excerpts of the cluster for rounds between the ends of time-sharing rounds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from scheduling.capacity.cluster_view import view
from scheduling.domain import Plan
from scheduling.engine.rounds import plan_round
from scheduling.engine.time_sharing.rounds import round_end
from scheduling.lifecycle import QUEUED
from scheduling.simulator.run import Run
from scheduling.simulator.snapshot import LEAVING, Ordered, Whole
from scheduling.simulator.window import Floor, most_gpus

if TYPE_CHECKING:
    from scheduling.simulator.engine import Engine

#: The GPUs of each type with which a job starts.
Sizes = tuple[tuple[str, int], ...]


class Resting(Whole):
    """The whole cluster at a round's end. Before it, under a policy that `rests`, one job that fits on the idle GPUs,
    with the nodes that placement can choose for it; no round if no job fits. The whole cluster after a node was
    lost."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.ages = engine.policy.capabilities.time_dependent
        self.waiting: dict[str, Run] = {}
        self.sizes: dict[str, Sizes] = {}  # of queued jobs
        self.classes = Counter[Sizes]()
        self.floor = Floor(engine.nodes)
        self.all = False

    def plan(self) -> Plan | None:
        engine = self.engine
        if self.all or self._is_over:
            return self._plan_all()
        if not self._any_job_fits():
            return None
        shown = [run for run in self.waiting.values() if self._room_for(self.sizes[run.job.id])]
        if len(shown) > 1:
            return self._plan_all()
        excerpt = self.snapshot(shown, *self.floor.excerpt([most_gpus(run) for run in shown]))
        return self._started(plan_round(excerpt, engine.policy))

    def _plan_all(self) -> Plan:
        engine = self.engine
        plan = plan_round(self.snapshot(engine.live.values()), engine.policy)
        if self.all:
            self.all = any(run.broken or run.state in LEAVING for run in engine.live.values())
            self.waiting = {key: run for key, run in engine.live.items() if run.state in QUEUED}
            self.sizes, self.classes = {}, Counter()
            self.floor.set_nodes(engine.nodes, engine.occupied.gpus | engine.assigned.gpus)
        return self._started(plan)

    def _started(self, plan: Plan) -> Plan:
        for move in plan.moves:
            if move.kind == "start" and self.waiting.pop(move.job_id, None) is not None:
                sizes = self.sizes.pop(move.job_id, None)
                if sizes is not None:
                    self.classes[sizes] -= 1
        return plan

    @property
    def _is_over(self) -> bool:
        """Whether the latest round has ended."""
        return self.engine.clock.now >= round_end(self.engine.memory)

    def _any_job_fits(self) -> bool:
        """By counts of GPUs."""
        if len(self.sizes) < len(self.waiting):  # nodes changed
            for run in self.waiting.values():
                self._file(run)
        return any(count and self._room_for(sizes) for sizes, count in self.classes.items())

    def _room_for(self, sizes: Sizes) -> bool:
        free = self.floor.free_of
        return any(free.get(kind, 0) >= least for kind, least in sizes)

    def _file(self, run: Run) -> None:
        if run.job.id not in self.sizes:
            sizes = self.sizes[run.job.id] = self._sizes_of(run)
            self.classes[sizes] += 1

    def _sizes_of(self, run: Run) -> Sizes:
        return tuple((kind, run.job.min_gpus) for kind in run.job.curves)

    def is_due(self, run: Run | None) -> bool:
        if self.all or self._is_over:
            return True
        # also jobs that failed before: with time the order changes, and with it the fit on nodes
        return self._any_job_fits()

    def queued(self, run: Run) -> None:
        self.waiting[run.job.id] = run
        self._file(run)

    def taken(self, gpus: Iterable[int]) -> None:
        self.floor.take(gpus)

    def given(self, gpus: Iterable[int]) -> None:
        self.floor.give(gpus)

    def disturbed(self) -> None:
        self.all = True


class Lasting(Resting):
    """The whole cluster, if a queued job's gang fits on the idle GPUs, or a node was lost: running jobs keep their
    GPUs. The policy decides how large gangs start (`start_sizes`); queued jobs with equal gangs are counted
    together."""

    def plan(self) -> Plan | None:
        return self._plan_all() if self.all or self._any_job_fits() else None

    def is_due(self, run: Run | None) -> bool:
        return self.all or self._any_job_fits()

    def _sizes_of(self, run: Run) -> Sizes:
        snapshot = self.snapshot((run,))
        found = self.engine.policy.start_sizes(view(snapshot), snapshot.jobs[0])  # type: ignore[attr-defined]
        return tuple(found.items())


class Placing(Resting):
    """The whole cluster, if a job is queued or a node was lost: under a packing policy running jobs keep their GPUs."""

    def plan(self) -> Plan | None:
        return self._plan_all() if self.all or self.waiting else None

    def is_due(self, run: Run | None) -> bool:
        return self.all or bool(self.waiting)

    def queued(self, run: Run) -> None:
        """Whether the job fits does not matter."""
        self.waiting[run.job.id] = run

    def taken(self, gpus: Iterable[int]) -> None:
        """Not needed: rounds get no excerpt."""

    def given(self, gpus: Iterable[int]) -> None:
        """Not needed, like `taken`."""


def sight_of(engine: Engine) -> Whole:
    """Chosen by the policy's capabilities. With limits, running jobs constrain others in further ways."""
    if engine.cluster.limits or engine.cluster.guarantees:
        return Whole(engine)
    if engine.policy.capabilities.strict_order:
        return Ordered(engine)
    if engine.policy.capabilities.places_gpu_parts:
        return Placing(engine)
    if engine.policy.capabilities.runs_to_completion:
        return Lasting(engine)
    return Resting(engine) if engine.policy.capabilities.holds_within_round else Whole(engine)
