"""A cluster at one moment, as a round sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from scheduling.domain.cluster import Node, Others, Partition, Window
from scheduling.domain.job import Job
from scheduling.domain.quota import Entity, Guarantee, Limit, Qos


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that a round may know. Jobs are live (not terminal) and in no particular order."""

    now: float
    nodes: tuple[Node, ...]
    jobs: tuple[Job, ...]
    seed: int = 0
    memory: Mapping[str, Any] = field(default_factory=dict)  # what the policy stored for its next call; JSON values
    next_event_s: float | None = None  # expected seconds to the next arrival or end, if known
    settings: Mapping[str, Any] = field(default_factory=dict)
    #: By key; jobs name the limits that apply to them.
    limits: Mapping[str, Limit] = field(default_factory=dict)
    guarantees: tuple[Guarantee, ...] = ()
    #: {(workload, workload, gang): {type: steps/s of each on shared GPUs}}
    pairs: Mapping[tuple[str, str, int], Mapping[str, tuple[float, float]]] = field(default_factory=dict)
    #: Project tree by key; a missing project is at the top with weight 1.
    entities: Mapping[str, Entity] = field(default_factory=dict)
    prices: Mapping[str, float] = field(default_factory=dict)  # per GPU-hour by accelerator type
    #: Shares of a project's members against each other and against the projects below it: {project: {user: shares}}.
    members: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    #: Decayed GPU-seconds as of `usage_at`, without GPUs held now: {project: {user: {type: seconds}}}.
    usage: Mapping[str, Mapping[str, Mapping[str, float]]] = field(default_factory=dict)
    usage_at: float = 0.0
    #: Fair-share factors of the site's own scheduler, from 0 to 1: {project: {user: factor}}.
    site_factors: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    qos: Mapping[str, Qos] = field(default_factory=dict)
    #: By name. A job gets GPUs on the nodes of its partition only; without partitions, every node is for all.
    partitions: Mapping[str, Partition] = field(default_factory=dict)
    #: Nodes that meet each constraint, by the constraint in the engine's syntax.
    constraints: Mapping[str, frozenset[str]] = field(default_factory=dict)
    #: Windows that have not ended. No job starts that would run into one that excludes it.
    windows: tuple[Window, ...] = ()
    #: Used by exiting processes or by `others`; cannot be assigned now.
    blocked_gpu_ids: frozenset[int] = frozenset()
    #: Jobs outside the portal; their GPUs are among the blocked ones.
    others: Others = field(default_factory=Others)

    @property
    def multi_node(self) -> bool:
        """Whether a gang may span nodes."""
        return bool(self.settings.get("multi_node", True))
