"""What a round sees of a cluster at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from scheduling.domain.cluster import Node, Others, Partition, Window
from scheduling.domain.job import Job
from scheduling.domain.quota import Entity, Guarantee, Limit, Qos


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that a round may know. Jobs are live (not terminal) and in no particular order."""

    now: float
    nodes: tuple[Node, ...]
    jobs: tuple[Job, ...]
    seed: int = 0
    memory: Mapping[str, Any] = field(default_factory=dict)  # what the policy asked to be remembered; JSON values
    next_event_s: float | None = None  # expected seconds to the next arrival or end, where known
    settings: Mapping[str, Any] = field(default_factory=dict)
    #: By key; jobs name those that bind them.
    limits: Mapping[str, Limit] = field(default_factory=dict)
    guarantees: tuple[Guarantee, ...] = ()
    #: {(workload, workload, gang): {type: steps/s of each where they share their GPUs}}
    pairs: Mapping[tuple[str, str, int], Mapping[str, tuple[float, float]]] = field(default_factory=dict)
    #: Project tree by key; a project that is missing stands at the top with weight 1.
    entities: Mapping[str, Entity] = field(default_factory=dict)
    prices: Mapping[str, float] = field(default_factory=dict)  # per GPU-hour by accelerator type
    #: Shares of a project's members against each other and against the projects below it: {project: {user: shares}}.
    members: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    #: Decayed GPU-seconds as of `usage_at`, what is held now left out: {project: {user: {type: seconds}}}.
    usage: Mapping[str, Mapping[str, Mapping[str, float]]] = field(default_factory=dict)
    usage_at: float = 0.0
    #: Fair-share factors that the site's own scheduler gives, from 0 to 1: {project: {user: factor}}.
    site_factors: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    qos: Mapping[str, Qos] = field(default_factory=dict)
    #: By name. A job is given GPUs on the nodes of its partition only; with none, every node is for all.
    partitions: Mapping[str, Partition] = field(default_factory=dict)
    #: What jobs ask of their nodes, in the engine's words, and the nodes that have it.
    constraints: Mapping[str, frozenset[str]] = field(default_factory=dict)
    #: That have not ended. No job is started where it would run into one that is not for it.
    windows: tuple[Window, ...] = ()
    #: Occupied by processes that are on their way out, or by `others`; nobody may be given these now.
    blocked_gpu_ids: frozenset[int] = frozenset()
    #: Its GPUs are among the blocked ones.
    others: Others = field(default_factory=Others)

    @property
    def multi_node(self) -> bool:
        """Whether a gang may be on several nodes."""
        return bool(self.settings.get("multi_node", True))
