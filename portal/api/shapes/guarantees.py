"""Guaranteed GPUs."""

from __future__ import annotations

from pydantic import Field

from portal.api.shapes.base import Page, Shape


class GuaranteedType(Shape):
    type: str
    gpus: int
    used: int


class Guarantee(Shape):
    project: str = Field(description="Key of the project; the jobs of all below it count too.")
    gpus: int = Field(description="Of all types together.")
    by_type: list[GuaranteedType] = Field(description="How many of them are of one type.")
    reclaim_within_s: int = Field(description="After so long protection keeps borrowers no longer.", examples=[300])
    used: int = Field(description="GPUs that its jobs have now.")
    borrowed: int = Field(description="How many of these are more than it is guaranteed.")
    unused: int = Field(description="Of what it is guaranteed; others may have borrowed it.")


class GuaranteePage(Page):
    results: list[Guarantee]
