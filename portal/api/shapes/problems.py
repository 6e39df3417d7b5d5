"""RFC 9457."""

from __future__ import annotations

from pydantic import Field

from portal.api.shapes.base import Shape


class ProblemField(Shape):
    field: str = Field(examples=["gpus.max"])
    message: str
    code: str


class Problem(Shape):
    type: str = Field(examples=["about:blank"])
    title: str
    status: int
    detail: str
    errors: list[ProblemField]
