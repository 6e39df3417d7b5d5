"""The part of the simulated cluster that a round sees, and the changes that make a round due."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from scheduling.domain import Node, Plan, Snapshot
from scheduling.engine.rounds import plan_round
from scheduling.lifecycle import QUEUED, State
from scheduling.policies.capabilities import Needs
from scheduling.simulator.gpu_sharing.pairs import PairBook
from scheduling.simulator.inputs.limits import by_key
from scheduling.simulator.run import Run
from scheduling.simulator.window import FIRST, Floor, Queue, most_gpus
from scheduling.solvers.budget import CLOCK

if TYPE_CHECKING:
    from scheduling.simulator.engine import Engine

LEAVING = frozenset({State.CHECKPOINTING, State.STOPPING, State.STANDBY})


class Whole:
    """The whole cluster, after any change: correct for every policy."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.limits = by_key(engine.cluster.limits)
        packs = Needs.PAIRS in engine.policy.capabilities.needs
        self.pairs = PairBook(engine.options.pairs, engine.size_of) if packs else None
        self.ages = True  # whether policies read jobs' steps

    def plan(self) -> Plan | None:
        """None: nothing can change."""
        engine = self.engine
        return plan_round(self.snapshot(engine.live.values()), engine.policy)

    def snapshot(
        self, runs: Iterable[Run], nodes: tuple[Node, ...] | None = None, taken: frozenset[int] | None = None
    ) -> Snapshot:
        """The runs on these nodes, with this many GPUs taken; on all nodes by default."""
        engine, cluster, now = self.engine, self.engine.cluster, self.engine.clock.now
        checkpoint_s, stop_s = cluster.checkpoint_s, cluster.stop_s
        ages = self.ages
        jobs = tuple(
            [
                run.seen if run.seen is not None and not ages else run.view(now, checkpoint_s, stop_s, ages=ages)
                for run in runs
            ]
        )
        return Snapshot(
            now=now,
            nodes=engine.nodes if nodes is None else nodes,
            jobs=jobs,
            seed=engine.seed,
            memory=engine.memory,
            next_event_s=engine.next_end_s() if engine.policy.capabilities.elastic else None,
            limits=self.limits,
            guarantees=cluster.guarantees,
            pairs=self.pairs.of(jobs) if self.pairs else {},
            settings={"multi_node": cluster.multi_node, "round_seconds": cluster.round_seconds, CLOCK: False},
            blocked_gpu_ids=frozenset(engine.occupied.gpus - engine.assigned.gpus) if taken is None else taken,
            prices=cluster.price_per_gpu_hour,
            **engine.shares.inputs(),
        )

    def is_due(self, run: Run | None) -> bool:
        """Whether a round is due: a run arrived, or (None) GPUs became free or may be taken away."""
        return True

    def unprotected(self) -> bool:
        """Whether a round is due because a run lost its protection."""
        return True

    def queued(self, run: Run) -> None:
        """A run waits."""

    def taken(self, gpus: Iterable[int]) -> None:
        """A plan assigned GPUs."""

    def given(self, gpus: Iterable[int]) -> None:
        """GPUs are free again."""

    def disturbed(self) -> None:
        """Nodes left or came back."""


class Ordered(Whole):
    """An excerpt, under a policy that serves the queue strictly in order; the whole cluster after a node was lost."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.queue, self.floor = Queue(), Floor(engine.nodes)
        self.blocker: Run | None = None  # blocks all jobs behind it
        self.least = 1  # with fewer free GPUs than this no job of the excerpt starts
        self.all = False

    def plan(self) -> Plan | None:
        if self.all:
            return self._plan_all()
        if not self.queue:
            return None
        size = FIRST
        while True:
            shown = self.queue.head(size)
            plan = plan_round(self._excerpt(shown), self.engine.policy)
            last = plan.reasons[shown[-1].job.id]
            spare = self.floor.free_gpus - sum(len(move.gpu_ids) for move in plan.moves)
            blocker = last.detail.get("by")
            if len(self.queue) <= size or blocker is not None or not spare:
                break
            size *= 2
        starting = {move.job_id for move in plan.moves}
        self.blocker = self.engine.live[blocker] if blocker is not None else None
        waiting = [run.job.min_gpus for run in shown if run.job.id not in starting]
        self.least = min(waiting) if self.blocker else 1
        for run in shown:
            if run.job.id in starting:
                self.queue.remove(run)
        return plan

    def _excerpt(self, shown: list[Run]) -> Snapshot:
        return self.snapshot(shown, *self.floor.excerpt([most_gpus(run) for run in shown]))

    def _plan_all(self) -> Plan:
        engine = self.engine
        plan = plan_round(self.snapshot(engine.live.values()), engine.policy)
        if not any(run.broken or run.state in LEAVING for run in engine.live.values()):
            self.all = False
        self.queue, self.blocker, self.least = Queue(), None, 1
        starting = {move.job_id for move in plan.moves}
        for run in engine.live.values():
            if run.state in QUEUED and run.job.id not in starting:
                self.queue.add(run)
        self.floor.set_nodes(engine.nodes, engine.occupied.gpus | engine.assigned.gpus)
        return plan

    def is_due(self, run: Run | None) -> bool:
        if self.all:
            return True
        if not self.queue:
            return False
        if run is not None and self.blocker is not None:
            return self.queue.is_before(run, self.blocker)
        return self.floor.free_gpus >= self.least

    def unprotected(self) -> bool:
        return False

    def queued(self, run: Run) -> None:
        self.queue.add(run)

    def taken(self, gpus: Iterable[int]) -> None:
        self.floor.take(gpus)

    def given(self, gpus: Iterable[int]) -> None:
        self.floor.give(gpus)

    def disturbed(self) -> None:
        self.all = True
