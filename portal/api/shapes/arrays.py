"""Arrays of jobs."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from portal.api.shapes.base import JobState, Money, Page, Shape
from portal.api.shapes.jobs import Person, ProjectRef


class JobArray(Shape):
    """Jobs of one file that differ in their index; what is said of them is of those that you may see."""

    number: int = Field(description="Of the jobs' own sequence; its jobs are also named by it, as 57_3.")
    name: str
    project: ProjectRef
    owner: Person | None
    indices: str = Field(examples=["0-15"])
    size: int
    max_running: int | None = Field(description="The most of its jobs that hold GPUs at once.")
    states: dict[JobState, int] = Field(description="How many of its jobs are in each state.")
    first_job: int = Field(description="Number of the job with the smallest index.")
    submitted_at: datetime
    ended: bool = Field(description="All of its jobs have.")


class ArrayCost(Shape):
    so_far: Money
    currency: str


class JobArrayDetail(JobArray):
    cost: ArrayCost = Field(description="Of its jobs together, until now.")


class JobArrayPage(Page):
    results: list[JobArray]


class ArrayCancelled(Shape):
    cancelled: int = Field(description="Jobs that were ended by this; those that had ended before stay as they are.")
    array: JobArrayDetail
