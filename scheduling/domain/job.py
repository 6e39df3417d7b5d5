"""Jobs as a round sees them, and the gangs of GPUs that they train on."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from scheduling.domain.usage_history import ResourceHistory
from scheduling.lifecycle import State

#: Thousandths of a GPU that is nobody else's.
WHOLE = 1_000

#: Around what tells a pool of nodes from others of its accelerator type, in the names that policies see.
POOL_MARK = "\x1f"


def plain_type(kind: str) -> str:
    """The accelerator type of a pool (scheduling.capacity.node_pools); of a type, itself."""
    return kind.partition(POOL_MARK)[0]


@dataclass(frozen=True, slots=True)
class Gang:
    """GPUs of one accelerator type that a job trains on together."""

    type: str
    count: int


@dataclass(frozen=True, slots=True)
class Curve:
    """f_M on one accelerator type: `steps_per_s[n - 1]` is the best throughput on up to n GPUs.

    Monotone (the envelope is taken where curves are made); beyond the last entry it is constant;
    0.0 where n GPUs cannot run the job. `spread_factor` multiplies gangs that span nodes, `spread_factors[n - 1]`
    those of n GPUs where it is known by count.
    """

    steps_per_s: tuple[float, ...]
    source: str = "catalogue"  # catalogue | user | measured | trial | estimated
    spread_factor: float = 1.0
    spread_factors: tuple[float, ...] = ()

    def spread_at(self, count: int) -> float:
        """What is left of the throughput of `count` GPUs where they span nodes."""
        if not self.spread_factors:
            return self.spread_factor
        return self.spread_factors[min(count, len(self.spread_factors)) - 1]

    def at(self, count: int) -> float:
        if count <= 0 or not self.steps_per_s:
            return 0.0
        return self.steps_per_s[min(count, len(self.steps_per_s)) - 1]


@dataclass(frozen=True, slots=True)
class NodeBounds:
    """On how many nodes a job may be, by the rules of `where`; `most` None: on any number. `of_each`: the most GPUs of
    one node that it may have, by those of `of_each_where`."""

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
        """Of GPUs, of each node that a job would be on."""
        there = len(counts)
        few = self.of_each is None or max(counts, default=0) <= self.of_each
        return few and self.least <= there <= (there if self.most is None else self.most)

    def hold(self, gpus: int) -> int:
        """How many GPUs of a node with so many it may have."""
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
    types: tuple[str, ...] = ()  # allowed accelerator types; empty: any with a curve
    remaining_steps: float = 0.0
    restartable: bool = True
    resizable: bool = True  # False: keeps the GPUs that it has, unless all of them are taken from it
    gpu_ids: tuple[int, ...] = ()  # assigned (STANDBY) or held
    gang: Gang | None = None
    has_trained: bool = False  # a first step was run at some time
    launch_s: float = 0.0  # latest measured launch, 0 when none
    checkpoint_s: float = 0.0
    restart_cost_s: float = 0.0  # expected checkpoint + stop + launch of a rescale
    protected_until: float | None = None
    not_before: float | None = None  # back-off of a retry; it does not queue earlier
    held: bool = False  # takes no part
    excluded_gpus: frozenset[int] = frozenset()
    weight: float = 1.0
    workload: str = ""  # model type and batch size; jobs of one workload share what is known of co-location
    done_steps: float = 0.0
    deadline: float | None = None
    limits: tuple[str, ...] = ()  # keys of the snapshot's limits that bind it, outermost level first
    user: str = ""  # whose it is, as `members` and `usage` of the snapshot have it
    eligible_at: float | None = None  # since when it could have run; None: since its submission
    ran_s: float = 0.0  # for how long it has trained
    held_since: float | None = None  # since when it holds what it holds
    time_limit_s: float | None = None  # training ends after so long, finished or not
    qos: str = ""
    waits_for: str = ""  # what has to happen before it queues, as a sentence; empty: nothing
    nice: int = 0  # what its owner took off its priority, which is already less by it
    partition: str = ""  # where the snapshot has partitions: the one it runs in; empty: on nodes that are in none
    #: Thousandths of each of its GPUs; below WHOLE others may have the rest, and it has one GPU.
    gpu_milli: int = WHOLE
    gpu_memory_mib: int = 0  # on each of its GPUs
    cpu_milli: int = 0  # of its node, with all that is below
    memory_mib: int = 0
    #: On how many nodes it may be; None: on any number.
    on_nodes: NodeBounds | None = None
    constraint: str = ""  # of the snapshot's: on its nodes only
    #: What it used of a GPU when it was recorded; None: not known.
    history: ResourceHistory | None = None
