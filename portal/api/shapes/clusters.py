"""The cluster: nodes, catalogue, policy, and what happened when."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import Field, RootModel

from portal.api.shapes.base import Detail, Money, OthersJob, Shape, SharePercent
from portal.api.shapes.jobs import SECONDS, Curve, HoldKind, Rescale
from portal.api.shapes.nodes import Drain, NodeHealth


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


class NumberedRescale(Rescale):
    number: int


class Timeline(Shape):
    from_at: datetime
    to_at: datetime
    nodes: list[TimelineNode]
    holds: list[HoldSpan]
    rescales: list[NumberedRescale]
    truncated: bool = Field(description="There were too many holds: the earliest are missing.")


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
    gpus: int = Field(description="That it holds there; where it holds none yet, those that it is to have.")
    share_percent: SharePercent
    since_at: datetime | None = Field(description="Since when it holds them; null: they are only assigned to it.")
    busy_part: float | None = Field(
        description="How busy its GPUs are by its newest report, mean of all that it has, 0 to 1; null where it does "
        "not say, and of jobs of projects that are not yours."
    )


class NodeUse(Shape):
    from_at: datetime
    to_at: datetime
    bucket_s: int
    held: list[tuple[float, float | None]] = Field(
        description=f"[[{SECONDS} when the bucket begins, part of its GPUs that was held in it, 0 to 1], ...]; parts "
        "of a GPU count as such; null before the node joined."
    )
    held_part: float | None = Field(description="Mean over the buckets in which the node was there.")


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
    jobs: list[NodeJob] = Field(description="Who holds GPUs there, or is to, by number.")
    busy_part: float | None = Field(
        description="How busy those of its GPUs are whose jobs say so, by their newest reports; null where none does."
    )
    use: NodeUse = Field(description="How much of it was held in the last 24 hours.")
    faults: list[NodeFault] = Field(
        description="Runs that failed in the last 7 days while they held GPUs there, newest first, 20 at most."
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
    enabled: bool = Field(description="False: nobody is warned, and nobody is parked.")
    utilisation_below: float = Field(description="Of its GPUs on average; 0: only steps count.")
    warn_after_s: float
    release_after_s: float | None = Field(description="Checkpoint and park, so long after it was busy last.")
    extension_s: float
    extensions_max: int
