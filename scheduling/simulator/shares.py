"""Decayed usage in simulated time, like the live ledger's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from scheduling.domain import Node
from scheduling.priority.decay import decayed, held
from scheduling.simulator.run import Run

#: Sums refer to one moment, which is moved after this many half-lives to keep them finite.
_MOVED_AFTER = 100.0
_NO_USAGE: dict[str, Any] = {}


class Shares:
    """For policies that read usage. All users of the trace are members of their projects, with equal shares."""

    def __init__(self, runs: Iterable[Run], nodes: Iterable[Node], half_life_s: float | None, start: float) -> None:
        self.half_life_s, self.at = half_life_s, start
        self.kind_of = {gpu: node.type for node in nodes for gpu in node.gpu_ids}
        self.members: dict[str, dict[str, float]] = {}
        self.usage: dict[str, dict[str, dict[str, float]]] = {}
        for run in runs:
            self.members.setdefault(run.job.project, {})[run.job.user] = 1.0

    def add(self, run: Run, until: float) -> None:
        """Add the GPUs that the run is about to leave."""
        if not run.occupied:
            return
        if self.half_life_s and until - self.at > _MOVED_AFTER * self.half_life_s:
            self._move(until)
        gpu_s = held(run.occupied_since, until, self.at, self.half_life_s) * run.gpus
        kinds = self.usage.setdefault(run.job.project, {}).setdefault(run.job.user, {})
        kind = self.kind_of[run.occupied[0]]
        kinds[kind] = kinds.get(kind, 0.0) + gpu_s

    def _move(self, to: float) -> None:
        for users in self.usage.values():
            for kinds in users.values():
                for kind, gpu_s in kinds.items():
                    kinds[kind] = decayed(gpu_s, to - self.at, self.half_life_s)
        self.at = to

    def inputs(self) -> Mapping[str, Any]:
        return {"members": self.members, "usage": self.usage, "usage_at": self.at}


class NoShares(Shares):
    """For policies that do not read usage."""

    def __init__(self) -> None:
        super().__init__((), (), None, 0.0)

    def add(self, run: Run, until: float) -> None:
        """Does nothing."""

    def inputs(self) -> Mapping[str, Any]:
        return _NO_USAGE
