"""Jobs as a round sees them, and the gangs of GPUs that they train on."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from scheduling.domain.usage_history import ResourceHistory
from scheduling.lifecycle import State

#: Thousandths of a whole GPU, which no other job shares.
WHOLE = 1_000

#: Separates the accelerator type from the node pool in the type names that policies see.
POOL_MARK = "\x1f"


def plain_type(kind: str) -> str:
    """The accelerator type of a pool (scheduling.capacity.node_pools); a plain type is returned as it is."""
    return kind.partition(POOL_MARK)[0]


@dataclass(frozen=True, slots=True)
class Gang:
    """GPUs of one accelerator type that a job trains on together."""

    type: str
    count: int


@dataclass(frozen=True, slots=True)
class Curve:
    """f_M on one accelerator type: `steps_per_s[n - 1]` is the best throughput on up to n GPUs.

    Monotone (curves are made as envelopes) and constant beyond the last entry; 0.0 if n GPUs cannot run the job.
    `spread_factor` scales gangs that span nodes; `spread_factors[n - 1]` scales those of n GPUs where the factor is
    known by count.
    """

    steps_per_s: tuple[float, ...]
    source: str = "catalogue"  # catalogue | user | measured | trial | estimated
    spread_factor: float = 1.0
    spread_factors: tuple[float, ...] = ()

    def spread_at(self, count: int) -> float:
        """The factor on the throughput of `count` GPUs if they span nodes."""
        if not self.spread_factors:
            return self.spread_factor
        return self.spread_factors[min(count, len(self.spread_factors)) - 1]

    def at(self, count: int) -> float:
        if count <= 0 or not self.steps_per_s:
            return 0.0
        return self.steps_per_s[min(count, len(self.steps_per_s)) - 1]


@dataclass(frozen=True, slots=True)
class NodeBounds:
    """How many nodes a job may span, by the rules of `where`; `most` None: any number. `of_each`: the most GPUs of one
    node that it may have, by the rules of `of_each_where`."""

    where: str
    most: int | None = None
    least: int = 1
    of_each: int | None = None
    of_each_where: str = ""

    @property
    def says(self) -> str:
        most, found = None if self.most is None else f"{self.most} node{'' if self.most == 1 else 's'}", []
        if self.least > 1:
            more = f" or more than {most}" if most else ""
            found.append(f"{self.where} allows no job on fewer than {self.least} nodes{more}")
        elif most:
            found.append(f"{self.where} allows {most} a job")
        if self.of_each is not None:
            found.append(f"{self.of_each_where} allows {self.of_each} GPU{'' if self.of_each == 1 else 's'} of a node")
        return " and ".join(found)

    def allow(self, counts: Collection[int]) -> bool:
        """Whether the job may span nodes with these counts of its GPUs."""
        there = len(counts)
        few = self.of_each is None or max(counts, default=0) <= self.of_each
        return few and self.least <= there <= (there if self.most is None else self.most)

    def hold(self, gpus: int) -> int:
        """How many GPUs of a node of this size the job may hold."""
        return gpus if self.of_each is None else min(gpus, self.of_each)


@dataclass(frozen=True, slots=True)
class Job:
    """A job with its live run, as a policy sees it."""

    id: str
    number: int
    project: str
    state: State
    submitted_at: float
    curves: Mapping[str, Curve]
    priority: int = 0  # larger goes first
    min_gpus: int = 1
    max_gpus: int | None = None
    types: tuple[str, ...] = ()  # allowed accelerator types; empty: every type with a curve
    remaining_steps: float = 0.0
    restartable: bool = True
    resizable: bool = True  # False: keeps its GPUs unless all of them are taken
    gpu_ids: tuple[int, ...] = ()  # assigned (STANDBY) or held
    gang: Gang | None = None
    has_trained: bool = False  # a first step has been run
    launch_s: float = 0.0  # latest measured launch, 0 when none
    checkpoint_s: float = 0.0
    restart_cost_s: float = 0.0  # expected checkpoint + stop + launch of a rescale
    protected_until: float | None = None
    not_before: float | None = None  # back-off of a retry; the job does not queue earlier
    held: bool = False  # on hold; not scheduled
    excluded_gpus: frozenset[int] = frozenset()
    weight: float = 1.0
    workload: str = ""  # model type and batch size; jobs of one workload share co-location measurements
    done_steps: float = 0.0
    deadline: float | None = None
    limits: tuple[str, ...] = ()  # keys of the snapshot's limits that apply, outermost level first
    user: str = ""  # the owner, as in `members` and `usage` of the snapshot
    eligible_at: float | None = None  # since when it could have run; None: since submission
    ran_s: float = 0.0  # how long it has trained
    held_since: float | None = None  # since when it holds its GPUs
    time_limit_s: float | None = None  # training stops after this time, finished or not
    qos: str = ""
    waits_for: str = ""  # what must happen before it queues, as a sentence; empty: nothing
    nice: int = 0  # what its owner took off its priority, which is already reduced by it
    partition: str = ""  # the partition it runs in, where the snapshot has any; empty: on nodes outside partitions
    #: Thousandths of each of its GPUs; below WHOLE the job has one GPU and others may share it.
    gpu_milli: int = WHOLE
    gpu_memory_mib: int = 0  # on each of its GPUs
    cpu_milli: int = 0  # on each of its nodes, like memory_mib
    memory_mib: int = 0
    #: How many nodes it may span; None: any number.
    on_nodes: NodeBounds | None = None
    constraint: str = ""  # a constraint of the snapshot: only on the nodes that meet it
    #: Recorded use of a GPU; None: unknown.
    history: ResourceHistory | None = None
