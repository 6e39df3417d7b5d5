"""Saved views of the list of jobs, and templates of job files."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from portal.api.shapes.base import Detail, Page, Shape

Column = Literal[
    "state",
    "project",
    "owner",
    "program",
    "partition",
    "cluster",
    "level",
    "priority",
    "labels",
    "progress",
    "gpus",
    "throughput",
    "slowdown",
    "waited",
    "cost",
    "submitted",
    "started",
    "ended",
]


class View(Shape):
    id: int
    name: str = Field(examples=["My sweep"])
    filters: Detail = Field(
        description="Parameters of GET jobs, those that are set.", examples=[{"state": ["running"]}]
    )
    ordering: str = Field(examples=["-number"])
    columns: list[Column] = Field(description="Of the page's table; empty: the reader's usual ones.")
    changed_at: datetime


class ViewPage(Page):
    results: list[View]


class TemplateSummary(Shape):
    id: int
    name: str = Field(examples=["ResNet, nightly"])
    description: str
    project: str | None = Field(description="Key of the project that it is shared with; null: yours alone.")
    author: str | None
    changed_at: datetime
    can_change: bool


class TemplatePage(Page):
    results: list[TemplateSummary]


class Template(TemplateSummary):
    file: Detail = Field(description="A job file.", examples=[{"model_type": "resnet50", "total_steps": 20_000}])
