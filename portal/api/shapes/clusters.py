"""The cluster: nodes, catalogue, policy, and events."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import Field, RootModel

from portal.api.shapes.base import Detail, JobRef, Money, OthersJob, Page, Shape, SharePercent
from portal.api.shapes.jobs import SECONDS, Curve, HoldKind, Resize


class TimelineNode(Shape):
    name: str
    type: str
    gpus: int
    emulated: bool


class HoldSpan(Shape):
    node: str
    index: int
    job: OthersJob
    epoch: int
    count: int = Field(description="GPUs of the job in this launch.")
    share_percent: SharePercent
    from_at: datetime
    to_at: datetime | None
    kind: HoldKind


class NumberedResize(Resize):
    number: int


class Timeline(Shape):
    from_at: datetime
    to_at: datetime
    nodes: list[TimelineNode]
    holds: list[HoldSpan]
    resizes: list[NumberedResize]
    truncated: bool = Field(description="There were too many spans: the earliest are missing.")


class HistoryPoint(Shape):
    at: datetime
    utilisation: float
    queued: int
    variance: float | None
    spend_per_hour: Money


class History(Shape):
    points: list[HistoryPoint]


class ModelType(Shape):
    name: str
    title: str
    description: str
    default_batch_size: int
    curves: dict[str, Curve] = Field(description="By accelerator type of this cluster.")
    runs_seen: int = Field(description="Runs that trained on real accelerators.")


class ModelTypes(RootModel[list[ModelType]]):
    pass


class AcceleratorType(Shape):
    name: str
    title: str
    count: int
    memory_mib: int
    price_per_gpu_hour: Money | None
    currency: str
    emulated: bool


class AcceleratorTypes(RootModel[list[AcceleratorType]]):
    pass


class AcceleratorPart(Shape):
    job: OthersJob
    kind: HoldKind
    share_percent: SharePercent


class NodeAccelerator(Shape):
    index: int
    uuid: str
    memory_mib: int
    state: Literal["free", "held", "assigned", "draining", "others"] = Field(
        description="Others: jobs of the engine that are not the portal's have it, or leave too few processors or too "
        "little memory for it."
    )
    kind: HoldKind | None
    job: OthersJob | None = Field(description="Who has it, or the largest part of it.")
    parts: list[AcceleratorPart] = Field(description="All who have it, the largest part first.")


class TakenByOthers(Shape):
    gpus: int
    cpus: int
    memory_mib: int
    until_at: datetime | None = Field(description="When their time limits end, at the latest; null: not known.")


class DrainedJob(Shape):
    job: OthersJob
    gpus: int = Field(description="That it has on the node.")
    outcome: Literal["ends", "moves", "lost"] | None = Field(
        description="It ends there, leaves by checkpoint, or is stopped for good at the deadline; null of others' jobs."
    )
    expected_end_at: datetime | None = Field(description="Where it is; null of others' jobs, and where not known.")
    text: str | None = Field(
        description="What becomes of it; null of others' jobs.",
        examples=["#12 cannot be restarted and is expected to end 40 min after the deadline: it will be lost."],
    )


class Drain(Shape):
    state: Literal["draining", "drained"] = Field(description="Drained: no job is there any more.")
    since_at: datetime | None
    deadline_at: datetime | None = Field(description="Null: jobs leave when there is room elsewhere.")
    reason: str
    by: str | None
    jobs: list[DrainedJob]


class CheckItem(Shape):
    subject: str = Field(examples=["free space"])
    result: Literal["passed", "failed", "unknown"] = Field(description="Unknown: this kind of node does not say.")
    seen: str
    fix: str = Field(description="What to do; empty unless it failed.")


class NodeCheck(Shape):
    cause: Literal["joined", "returned", "faults", "asked", "again"] = Field(
        description="It joined, is back, runs failed on it, a user asked, or the last check had failed."
    )
    asked_at: datetime
    asked_by: str | None
    begun_at: datetime | None
    ended_at: datetime | None
    passed: bool | None
    items: list[CheckItem]


class NodeHealth(Shape):
    state: Literal["checking", "failed"] | None = Field(
        description="Why nothing new starts there: its check is awaited, or failed. Null: neither."
    )
    open: NodeCheck | None = Field(description="That is awaited or under way.")
    last: NodeCheck | None = Field(description="The newest that came to an end.")
    failures: int = Field(description="In a row.")
    next_at: datetime | None = Field(description="When one that failed is repeated.")
    waived_at: datetime | None = Field(description="Since when it is used without a passed check.")
    waived_by: str | None


class Node(Shape):
    name: str
    type: str
    gpus: int
    emulated: bool
    schedulable: bool
    drained: bool
    lost: bool
    unclear: str | None = Field(
        description="The engine's word where it cannot say whether the node is up: what runs there goes on, and "
        "nothing new begins.",
        examples=["UNKNOWN"],
    )
    unclear_since_at: datetime | None
    power: Literal["powered_down", "powering_up"] | None = Field(
        description="The engine's power saving has switched the node off; it is powered up for the first job that is "
        "sent there. None: it is up."
    )
    up_in_s: float | None = Field(
        description="How long until it is up: since it is powering up, or once a job is sent there."
    )
    cpus: int
    memory_mib: int
    last_seen_at: datetime | None
    accelerators: list[NodeAccelerator]
    taken: list[TakenByOthers] = Field(
        description="What jobs of the engine that are not the portal's hold of it, those first that end first."
    )
    drain: Drain | None = Field(description="Of a drained node.")
    check: NodeHealth


class Nodes(RootModel[list[Node]]):
    pass


class NodeJob(Shape):
    job: OthersJob
    gpus: int = Field(description="Allocated there; where none are yet, those assigned to it.")
    share_percent: SharePercent
    since_at: datetime | None = Field(description="Since when they are allocated; null: they are only assigned to it.")
    busy_part: float | None = Field(
        description="How busy its GPUs are by its newest report, mean of all that it has, 0 to 1; null where it does "
        "not say, and of jobs of projects that are not yours."
    )


class NodeUse(Shape):
    from_at: datetime
    to_at: datetime
    bucket_s: int
    allocated: list[tuple[float, float | None]] = Field(
        description=f"[[{SECONDS} when the bucket begins, part of its GPUs that was allocated in it, 0 to 1], ...]; "
        "GPU shares count as such; null before the node joined."
    )
    allocated_part: float | None = Field(description="Mean over the buckets in which the node was there.")


class NodeFault(Shape):
    job: OthersJob
    attempt: int
    at: datetime
    reason: str = Field(description="How it ended.", examples=["runner_lost"])
    text: str | None = Field(description="In words; null of jobs of projects that are not yours.")


class NodeEvent(Shape):
    id: int
    at: datetime
    kind: Literal[
        "node_joined",
        "node_lost",
        "node_back",
        "node_drained",
        "node_resumed",
        "node_drain_due",
        "node_checked",
        "node_check_failed",
        "node_check_waived",
        "node_faulty",
    ]
    text: str


class NodeDetail(Node):
    jobs: list[NodeJob] = Field(description="Jobs with GPUs there, or assigned to them, by number.")
    busy_part: float | None = Field(
        description="How busy those of its GPUs are whose jobs say so, by their newest reports; null where none does."
    )
    use: NodeUse = Field(description="How much of it was allocated in the last 24 hours.")
    faults: list[NodeFault] = Field(
        description="Runs that failed in the last 7 days while they had GPUs there, newest first, 20 at most."
    )
    faults_by_reason: dict[str, int] = Field(description="How many those are, of all projects, by reason.")
    events: list[NodeEvent] = Field(description="Of the node in the last 90 days, newest first, 20 at most.")


class Preset(Shape):
    name: str
    parameters: dict[str, Any]


class PolicyKind(Shape):
    name: str
    title: str
    description: str
    schema_: dict[str, Any] = Field(alias="schema", description="JSON schema of its parameters.")
    elastic: bool
    presets: list[Preset] = Field(description="Sets of parameters that people know; what one leaves out is default.")


class PolicyKinds(RootModel[list[PolicyKind]]):
    pass


class Policy(Shape):
    name: str
    parameters: Detail
    changed_at: datetime | None
    changed_by: str | None
    effective_round: int | None = Field(description="The first round under it.")
    can_undo: bool
    notes: list[str]


class PolicyChange(Shape):
    id: int
    name: str
    parameters: Detail
    changed_at: datetime
    changed_by: str | None
    effective_round: int | None
    undone: bool


class PolicyChangePage(Shape):
    next: str | None
    previous: str | None
    results: list[PolicyChange]


class IdleRule(Shape):
    enabled: bool = Field(description="False: idle jobs are neither warned nor suspended.")
    utilisation_below: float = Field(description="Of its GPUs on average; 0: only steps count.")
    warn_after_s: float
    release_after_s: float | None = Field(description="Suspend with a checkpoint after so long without use.")
    extension_s: float
    extensions_max: int


class FailingItem(Shape):
    loop: str = Field(examples=["limits"], description="As the label `loop` of `evenkeel_item_failures_total`.")
    task: str = Field(examples=["enforce a job's max_cost or deadline"], description='To be read after "fails to".')
    name: str = Field(examples=["#12 resnet-night"], description="The job, run, node, file or step that it fails at.")
    cluster: str | None = Field(examples=["main"], description="Null: of no cluster in particular.")
    job: JobRef | None
    since_at: datetime
    last_at: datetime
    next_attempt_at: datetime
    failures: int = Field(examples=[3], description="In a row.")
    error: str = Field(examples=["KeyError: 'nice'"], description="The last one, without what looks like a secret.")


class FailingItemPage(Page):
    results: list[FailingItem]


class Partition(Shape):
    name: str
    priority: int
    nodes: list[str] = Field(description="Nodes that are in it by name.")
    accelerator_types: list[str] = Field(description="Types whose nodes are all in it.")
    node_count: int = Field(description="Nodes that are in it now, by name or type.")
    gpus: int = Field(description="GPUs on them.")
    for_everybody: bool
    projects: list[str] = Field(description="Keys of your projects that may use it, with all below them.")
    max_gpus: int | None = Field(description="Of one job.")
    max_duration_s: int | None = Field(description="Of one job.")
    is_default: bool = Field(description="Jobs that name none get this one.")


class PartitionPage(Page):
    results: list[Partition]


class Window(Shape):
    id: int
    kind: Literal["maintenance", "reservation"]
    state: Literal["coming", "in_force", "over", "removed"]
    start_at: datetime
    end_at: datetime
    reason: str
    nodes: list[str] = Field(description="Nodes that it is on by name.")
    accelerator_types: list[str] = Field(description="Types on all of whose nodes it is.")
    all_nodes: bool
    projects: list[str] = Field(description="Of a reservation: your projects that it is for, with all below.")
    users: list[str] = Field(description="Addresses of people that it is for: your own; all to administrators.")
    created_at: datetime
    created_by: str | None
    removed_at: datetime | None = Field(description="When it was taken back, or ended before its time.")


class WindowPage(Page):
    results: list[Window]


class DrainPreview(Shape):
    deadline_at: datetime | None
    jobs: list[DrainedJob]


class Examination(Shape):
    cluster: str
    executor: str = Field(examples=["local"])
    began_at: datetime | None = Field(description="Null: there was none within the last hour.")
    ended_at: datetime | None
    findings: list[CheckItem] = Field(description="Once it has ended.")
