"""The state that one step of a round passes to the next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import TYPE_CHECKING

from scheduling.capacity.cluster_view import RoundView, view
from scheduling.domain import Allocation, Gang, Job, Reason, Snapshot
from scheduling.policies.base import Policy

if TYPE_CHECKING:
    from scheduling.capacity.node_pools import Pools
    from scheduling.engine.constraints.gpu_sharing import SharedGpus
    from scheduling.engine.constraints.unavailable_nodes import Unavailable
    from scheduling.engine.reclaim.reclaim import ReclaimDecision


class Rank(IntEnum):
    """Which reason wins if steps give a job several: the one of the highest rank."""

    GPU_SHARING = 1
    HOST_RESOURCES = 2
    BORROWING = 3
    BUDGET = 4
    RECLAIM = 5


@dataclass(frozen=True, slots=True)
class Effect:
    """What a constraint changes before the policy is asked."""

    #: Jobs as the policy sees them; None: hidden.
    changed: Mapping[str, Job | None] = field(default_factory=dict)
    reasons: Mapping[str, Reason] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Placement:
    """An answer on concrete accelerators; jobs that are missing hold nothing."""

    gpus: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    gangs: Mapping[str, Gang] = field(default_factory=dict)

    def with_starts(self, gpus: Mapping[str, tuple[int, ...]], gangs: Mapping[str, Gang]) -> Placement:
        return Placement({**self.gpus, **gpus}, {**self.gangs, **gangs}) if gpus else self


@dataclass(frozen=True, slots=True)
class RoundState:
    """Frozen: each step of a round makes a new one."""

    policy: Policy
    #: Node pools in place of accelerator types; None where all jobs may use all nodes.
    pools: Pools | None
    #: The snapshot as the round got it, and as the policy sees it.
    unavailable: Unavailable
    shared: SharedGpus | None = None
    reasons: Mapping[Rank, Mapping[str, Reason]] = field(default_factory=dict)
    allocation: Allocation = field(default_factory=Allocation)
    reclaimed: ReclaimDecision | None = None
    placement: Placement = field(default_factory=Placement)
    #: Why the policy's answer is not applied.
    rejected: Reason | None = None

    @property
    def original(self) -> Snapshot:
        return self.unavailable.original

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot as the policy sees it."""
        return self.unavailable.snapshot

    @property
    def view(self) -> RoundView:
        return view(self.snapshot)

    def hide(self, changed: Mapping[str, Job | None]) -> RoundState:
        """Show these jobs to the policy in this form; None: hide the job."""
        return replace(self, unavailable=self.unavailable.change(changed)) if changed else self

    def explained(self, rank: Rank, reasons: Mapping[str, Reason]) -> RoundState:
        if not reasons:
            return self
        return replace(self, reasons={**self.reasons, rank: {**self.reasons.get(rank, {}), **reasons}})
