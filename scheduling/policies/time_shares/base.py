"""Base of policies that answer with time shares: their settings and the form of their answer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any, ClassVar, Literal

from pydantic import Field

from scheduling.domain import Allocation, Reason, Snapshot
from scheduling.policies.base import Parameters as BaseParameters
from scheduling.policies.capabilities import Answer, Capabilities, Needs
from scheduling.policies.time_shares.gavel.objective import blind
from scheduling.policies.time_shares.programs.groups import Fractions, build
from scheduling.policies.time_shares.programs.ungrouping.ungroup import Shares
from scheduling.solvers.budget import time_budget_s
from scheduling.solvers.lp import Engine


class FractionParameters(BaseParameters):
    variant: Literal["agnostic", "perf", "packed"] = Field(
        default="perf",
        description="What the policy uses: only where a job can run, how fast it runs, or also how pairs share GPUs.",
    )
    pair_threshold: float = Field(
        default=1.0,
        ge=1.0,
        le=2.0,
        description="Pairs share GPUs where their summed normalised throughput exceeds this.",
    )
    round_seconds: float = Field(default=360.0, gt=0, le=86_400, description="Length of a scheduling round.")
    recompute_seconds: float = Field(
        default=1_920.0, gt=0, le=86_400, description="Time shares are recomputed at least this often."
    )
    restart_part: float = Field(
        default=0.025,
        gt=0,
        le=1,
        description="A job keeps its GPUs at a round's end until a restart costs at most this part of the time since.",
    )
    solver: Engine = Field(default="highs", description="Linear programming engine.")
    solver_time_limit_s: float = Field(default=30.0, gt=0, le=600, description="Then the last valid plan stays.")
    compatible: bool = Field(
        default=False, description="The reference mechanism's own rules, to compare with its published results."
    )


class FractionPolicy(ABC):
    """Subclasses define `name`, `title` and `solve`."""

    name: ClassVar[str]
    title: ClassVar[str]
    Parameters: ClassVar[type[BaseParameters]] = FractionParameters
    capabilities = Capabilities(Answer.TIME_SHARES)
    #: Whether equivalent jobs must be distinguished.
    apart: ClassVar[bool] = False
    parameters: FractionParameters

    def __init__(self, parameters: object = None) -> None:
        schema = type(self).Parameters
        self.parameters = parameters if isinstance(parameters, schema) else schema()  # type: ignore[assignment]
        known = type(self).capabilities
        pairs = Needs.PAIRS if self.parameters.variant == "packed" else Needs.NONE
        # Under the reference's own rules jobs may be moved within a round.
        self.capabilities = replace(known, needs=known.needs | pairs, holds_within_round=not self.parameters.compatible)

    def allocate(self, snapshot: Snapshot) -> Allocation:
        found = self.fractions(snapshot)
        if not found.jobs:
            return Allocation(shares={}, reasons=found.absent)
        objective, shares = self.solve(snapshot, found)
        return Allocation(
            shares=shares,
            reasons={**found.absent, **self.reasons(snapshot, found)},
            memory=self.memory(snapshot, found),
            figures={"objective": objective, "groups": float(len(found.gang)), "columns": float(len(found.columns))},
        )

    def fractions(self, snapshot: Snapshot) -> Fractions:
        settings = self.parameters
        variant = "perf" if settings.compatible and settings.variant == "agnostic" else settings.variant
        apart = self.apart or settings.compatible
        found = build(snapshot, variant=variant, pair_threshold=settings.pair_threshold, apart=apart)
        return blind(found) if variant != settings.variant and found.jobs else found

    def limits(self, snapshot: Snapshot) -> tuple[Engine, float]:
        """The engine, and its time limit in seconds."""
        return self.parameters.solver, time_budget_s(snapshot, self.parameters.solver_time_limit_s)

    @abstractmethod
    def solve(self, snapshot: Snapshot, found: Fractions) -> tuple[float, Shares]: ...

    def memory(self, snapshot: Snapshot, found: Fractions) -> dict[str, Any]:
        """Stored for the next computation, which reads it by `remembered(snapshot)`."""
        return {}

    def reasons(self, snapshot: Snapshot, found: Fractions) -> dict[str, Reason]:
        return {}
