"""Parts that many answers share."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from scheduling.lifecycle import State

Money = Annotated[str, Field(pattern=r"^-?\d+(\.\d+)?$", description="An amount in the currency.", examples=["12.50"])]

JobState = Literal["queued", "starting", "running", "rescaling", "succeeded", "failed", "cancelled"]

RunState = Annotated[str, Field(json_schema_extra={"enum": [s.value for s in State]})]

Source = Literal["measured", "user", "catalogue", "estimated", "trial"]

Role = Literal["viewer", "member", "manager"]

Detail = dict[str, Any]


class Shape(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Page(Shape):
    next: str | None = Field(description="Address of the next page.")
    previous: str | None


SharePercent = Annotated[int, Field(ge=1, le=100, examples=[100], description="Of each of its GPUs; 100: whole ones.")]


class GpuRef(Shape):
    node: str
    index: int


class JobRef(Shape):
    number: int
    name: str | None = Field(description="Null for a job of a project that is not yours.")


class OthersJob(JobRef):
    """The part of a job that everybody signed in may see."""

    project: str = Field(description="Name of the project.")


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
