"""Nodes, partitions and time windows as a round sees them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from scheduling.domain.job import Job


@dataclass(frozen=True, slots=True)
class Drain:
    """No job starts on the node, and its jobs leave: by `deadline`, or without one as soon as there is room
    elsewhere."""

    deadline: float | None = None
    text: str = ""  # the purpose


@dataclass(frozen=True, slots=True)
class Beside:
    """CPUs and memory of a node that jobs not managed by the portal use; until None: the end is unknown."""

    cpu_milli: int
    memory_mib: int
    until: float | None = None


@dataclass(frozen=True, slots=True)
class Node:
    """One machine. `gpu_ids` are ids of accelerators in index order; all have one type."""

    name: str
    type: str
    gpu_ids: tuple[int, ...]
    schedulable: bool = True  # False: drained, lost or withheld; no job starts here
    lost: bool = False  # its jobs must be evicted now
    emulated: bool = False
    drain: Drain | None = None
    #: Why no job starts here although the node is neither drained nor lost, as "being checked"; running jobs stay.
    withheld: str = ""
    #: Capacity for all jobs on the node; None: unknown, and no job is refused for it.
    cpu_milli: int | None = None
    memory_mib: int | None = None
    gpu_memory_mib: int | None = None  # of each accelerator
    #: Use of the node by the engine's other jobs (see Others).
    others: tuple[Beside, ...] = ()
    #: The node is powered down: the first launch there waits this long for it.
    boot_s: float = 0.0

    @property
    def free_cpu_milli(self) -> int | None:
        """CPUs for jobs of the portal."""
        return None if self.cpu_milli is None else self.cpu_milli - sum(one.cpu_milli for one in self.others)

    @property
    def free_memory_mib(self) -> int | None:
        return None if self.memory_mib is None else self.memory_mib - sum(one.memory_mib for one in self.others)


@dataclass(frozen=True, slots=True)
class Others:
    """GPUs that the engine's jobs outside the portal use, and the latest end of each (None: unknown). `engine`: its
    name, for people."""

    gpus: Mapping[int, float | None] = field(default_factory=dict)
    engine: str = ""


@dataclass(frozen=True, slots=True)
class Partition:
    """A named set of nodes that jobs ask for; its priority is relative to the other partitions."""

    nodes: frozenset[str] = frozenset()
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Window:
    """Nodes that from `start` until `end` are for some projects and users only, or closed to all."""

    id: str
    nodes: frozenset[str]
    start: float
    end: float
    projects: frozenset[str] = frozenset()
    users: frozenset[str] = frozenset()
    text: str = ""  # the purpose

    @property
    def kind(self) -> str:
        return "reservation" if self.projects or self.users else "maintenance"

    def admits(self, job: Job) -> bool:
        return job.project in self.projects or job.user in self.users
