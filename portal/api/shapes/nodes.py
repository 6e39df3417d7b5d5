"""Sets of nodes."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from portal.api.shapes.base import Page, Shape


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
