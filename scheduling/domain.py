"""What a round sees and what it answers: frozen values, no clock, no database.

Times are POSIX seconds (float) on the caller's clock, throughputs training steps per second.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from scheduling.histories import ResourceHistory
from scheduling.lifecycle import State

#: Thousandths of a GPU that is nobody else's.
WHOLE = 1_000
#: Around what tells a pool of nodes from others of its accelerator type, in the names that policies see.
POOL_MARK = "\x1f"


def plain_type(kind: str) -> str:
    """The accelerator type of a pool (scheduling.pools); of a type, itself."""
    return kind.partition(POOL_MARK)[0]


@dataclass(frozen=True, slots=True)
class Gang:
    """GPUs of one accelerator type that a job trains on together."""

    type: str
    count: int


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


@dataclass(frozen=True, slots=True)
class Entity:
    """A node of the project tree: its share of its parent's, and how it divides its own among jobs; its priority
    against the other nodes' is that of its parent where it has none of its own."""

    parent: str | None = None
    weight: float = 1.0
    inner: str = "fairness"  # fairness | fifo
    priority: int | None = None


@dataclass(frozen=True, slots=True)
class Qos:
    """A level of service: its priority among the others, and jobs of which levels it may put out."""

    priority: int = 0
    preempts: tuple[str, ...] = ()
    #: Its own jobs end for good when they are put out, instead of queueing again.
    cancelled_when_put_out: bool = False


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


@dataclass(frozen=True, slots=True)
class Limit:
    """A bound on what the jobs that name it may have together, on whatever level it sits.

    gpus: GPUs held at once, of `type` only where it is given; `text`, where it is
    given, says so in whole words, as "QOS gold allows 8 GPUs at a time". running_jobs: jobs that hold GPUs.
    queued_jobs: jobs that a round looks at, in queue order. spent: a period's budget is used up, so
    none of its jobs starts and together they do not grow; `text` says so.
    """

    kind: Literal["gpus", "running_jobs", "queued_jobs", "spent"]
    most: int = 0
    type: str | None = None
    level: str = ""  # where it sits, as "project Speech"
    text: str = ""
    beside: int = 0  # held by others than these jobs, and taken off `most`
    word: str = ""  # Slurm's own, where it is one of Slurm's
    parks: bool = False  # spent: whoever can write a checkpoint leaves its GPUs, too
    until: float | None = None  # spent: when the period ends


@dataclass(frozen=True, slots=True)
class Guarantee:
    """GPUs that the jobs of a project and of all below it get, where others have borrowed them, within a time."""

    project: str
    gpus: int
    type: str | None = None  # of this type only
    reclaim_within_s: float = 300.0
    level: str = ""  # where it sits, as "project Speech"


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


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a job got what it got: a machine token, and a sentence for people."""

    token: str
    text: str
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Allocation:
    """A policy's answer. Exactly one of the three kinds is set; a job that is missing gets nothing.

    counts: whole GPUs per job (elastic policies).
    shares: fraction of time per type, of one job or of two that share their GPUs (round policies).
    placements: accelerator ids per job (packing policies).
    """

    counts: Mapping[str, Gang] | None = None
    shares: Mapping[tuple[str, ...], Mapping[str, float]] | None = None
    placements: Mapping[str, tuple[int, ...]] | None = None
    reasons: Mapping[str, Reason] = field(default_factory=dict)
    memory: Mapping[str, Any] = field(default_factory=dict)
    figures: Mapping[str, float] = field(default_factory=dict)  # variance, throughput_sum, gap, ...
    next_wake_at: float | None = None


@dataclass(frozen=True, slots=True)
class Move:
    """One change: the job's GPUs become `gpu_ids` (empty: it is queued again)."""

    job_id: str
    kind: str  # start | rescale | preempt
    gpu_ids: tuple[int, ...]
    gang: Gang | None
    before: Gang | None
    reason: Reason
    taken_by: tuple[str, ...] = ()  # who gets the GPUs that it leaves


@dataclass(frozen=True, slots=True)
class Plan:
    """What a round decided. Applied as a whole against the snapshot it came from."""

    moves: tuple[Move, ...] = ()
    reasons: Mapping[str, Reason] = field(default_factory=dict)  # per live job, moved or not
    memory: Mapping[str, Any] = field(default_factory=dict)
    figures: Mapping[str, float] = field(default_factory=dict)
    next_wake_at: float | None = None
    rejected: str | None = None  # why the policy's plan was not applied (min_gain), in words
