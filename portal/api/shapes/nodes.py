"""Sets of nodes."""

from __future__ import annotations

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
