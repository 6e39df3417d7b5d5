"""Nodes, partitions and time windows as a round sees them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from scheduling.domain.job import Job


@dataclass(frozen=True, slots=True)
class Drain:
    """Nothing new comes to a node, and whoever is there leaves: by `deadline`, or where there is none, when there is
    room elsewhere."""

    deadline: float | None = None
    text: str = ""  # what it is for


@dataclass(frozen=True, slots=True)
class Beside:
    """What jobs that are not ours have of a node's processors and memory; until None: it is not known how long."""

    cpu_milli: int
    memory_mib: int
    until: float | None = None


@dataclass(frozen=True, slots=True)
class Node:
    """One machine. `gpu_ids` are ids of accelerators in index order; all have one type."""

    name: str
    type: str
    gpu_ids: tuple[int, ...]
    schedulable: bool = True  # False: drained, lost or withheld; nothing new is placed here
    lost: bool = False  # its jobs must be moved away now
    emulated: bool = False
    drain: Drain | None = None
    #: Why nothing new is placed here though it is neither drained nor lost, as "being checked"; who is there stays.
    withheld: str = ""
    #: What all that run on it share; None: not known, and nobody is refused for it.
    cpu_milli: int | None = None
    memory_mib: int | None = None
    gpu_memory_mib: int | None = None  # of each accelerator
    #: What of it the engine's jobs that are not ours have (see Others).
    others: tuple[Beside, ...] = ()
    #: It is powered down: so long the first launch there waits for it.
    boot_s: float = 0.0

    @property
    def free_cpu_milli(self) -> int | None:
        """What is left to ours."""
        return None if self.cpu_milli is None else self.cpu_milli - sum(one.cpu_milli for one in self.others)

    @property
    def free_memory_mib(self) -> int | None:
        return None if self.memory_mib is None else self.memory_mib - sum(one.memory_mib for one in self.others)


@dataclass(frozen=True, slots=True)
class Others:
    """What jobs of the engine that are not ours take from us: GPUs that nobody can be given now, and until when they
    have them at the latest (None: not known). `engine`: its name, for people."""

    gpus: Mapping[int, float | None] = field(default_factory=dict)
    engine: str = ""


@dataclass(frozen=True, slots=True)
class Partition:
    """A set of nodes, by name, that jobs name; its priority is against the other partitions'."""

    nodes: frozenset[str] = frozenset()
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Window:
    """Nodes, by name, that from `start` until `end` are for some projects and users only, or for nobody."""

    id: str
    nodes: frozenset[str]
    start: float
    end: float
    projects: frozenset[str] = frozenset()
    users: frozenset[str] = frozenset()
    text: str = ""  # what it is for

    @property
    def kind(self) -> str:
        return "reservation" if self.projects or self.users else "maintenance"

    def admits(self, job: Job) -> bool:
        return job.project in self.projects or job.user in self.users
