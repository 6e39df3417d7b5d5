"""Nodes that fail and recover: a seeded process for each node, the same under every policy."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from scheduling.domain import Node
from scheduling.lifecycle import HOLDING, State
from scheduling.simulator.run import Run

if TYPE_CHECKING:
    from scheduling.simulator.engine import Engine


class Failures:
    """Times to failure are exponential with the node type's `mtbf_s`; a repair takes `repair_s`."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.down: set[str] = set()
        self.gpus_down: set[int] = set()

    def start(self) -> None:
        for node in self.engine.cluster.nodes:
            known = self.engine.cluster.reliability.get(node.type)
            if known is not None:
                rng = random.Random(f"{self.engine.seed}:failures:{node.name}")  # noqa: S311  # nosec B311
                self._fail_later(node, rng, *known)

    def hits(self, gpus: Iterable[int]) -> bool:
        return bool(self.gpus_down) and not self.gpus_down.isdisjoint(gpus)

    def _fail_later(self, node: Node, rng: random.Random, mtbf_s: float, repair_s: float) -> None:
        self.engine.clock.after(rng.expovariate(1.0 / mtbf_s), lambda: self._fail(node, rng, mtbf_s, repair_s))

    def _fail(self, node: Node, rng: random.Random, mtbf_s: float, repair_s: float) -> None:
        engine = self.engine
        if engine.is_over:
            return
        engine.outcome.failures += 1
        self.down.add(node.name)
        self.gpus_down.update(node.gpu_ids)
        for run in engine.live.values():
            if run.state in HOLDING and not set(node.gpu_ids).isdisjoint(run.occupied):
                self._break(run)
        self._changed()
        engine.clock.after(repair_s, lambda: self._repair(node, rng, mtbf_s, repair_s))

    def _break(self, run: Run) -> None:
        """The node's processes are gone; the scheduler sees the node as lost and evicts the job."""
        self.engine.stop_training(run)
        run.roll_back()
        run.broken, run.seen = True, None
        run.failures += 1
        if run.state not in (State.CHECKPOINTING, State.STOPPING):
            run.epoch += 1  # whatever state it was about to reach

    def _repair(self, node: Node, rng: random.Random, mtbf_s: float, repair_s: float) -> None:
        self.down.discard(node.name)
        self.gpus_down.difference_update(node.gpu_ids)
        self._changed()
        if not self.engine.is_over:
            self._fail_later(node, rng, mtbf_s, repair_s)

    def _changed(self) -> None:
        engine = self.engine
        engine.nodes = tuple(
            replace(node, schedulable=False, lost=True) if node.name in self.down else node
            for node in engine.cluster.nodes
        )
        engine.sight.disturbed()
        engine.wake()
