"""Sets of nodes."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from portal.api.shapes.base import OthersJob, Page, Shape


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


class DrainPreview(Shape):
    deadline_at: datetime | None
    jobs: list[DrainedJob]


class CheckItem(Shape):
    subject: str = Field(examples=["free space"])
    result: Literal["passed", "failed", "unknown"] = Field(description="Unknown: this kind of node does not say.")
    seen: str
    fix: str = Field(description="What to do; empty unless it failed.")


class Examination(Shape):
    cluster: str
    executor: str = Field(examples=["local"])
    began_at: datetime | None = Field(description="Null: there was none within the last hour.")
    ended_at: datetime | None
    findings: list[CheckItem] = Field(description="Once it has ended.")


class NodeCheck(Shape):
    cause: Literal["joined", "returned", "faults", "asked", "again"] = Field(
        description="It joined, is back, runs failed on it, somebody asked, or the last check had failed."
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
