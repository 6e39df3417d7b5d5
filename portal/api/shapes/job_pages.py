"""Dependencies of a job, and arrays of jobs."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from portal.api.shapes.base import Detail, JobState, Money, OthersJob, Page, Shape, SharePercent
from portal.api.shapes.jobs import ArrayPlace, Emulated, Person, ProjectRef


class JobArray(Shape):
    """Jobs of one file that differ in their index; figures are of those that you may see."""

    number: int = Field(description="Of the jobs' own sequence; its jobs are also named by it, as 57_3.")
    name: str
    project: ProjectRef
    owner: Person | None
    indices: str = Field(examples=["0-15"])
    size: int
    max_running: int | None = Field(description="The most of its jobs that have GPUs at once.")
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


class Ahead(OthersJob):
    array: ArrayPlace | None
    gpus: int = Field(description="Allocated, or the least that it waits for.")
    share_percent: SharePercent
    state: JobState


class Weighed(Shape):
    number: int
    name: str
    gain_steps_per_s: float
    variance: float | None


class Taker(OthersJob):
    within: str = Field(description="The lowest level of the tree that both share.", examples=["your own project"])


class Displaced(Shape):
    """GPUs that were taken from the job and that it does not have again."""

    at: datetime
    kind: Literal["preempted", "shrunk"]
    code: str = Field(description="Why, in the decision that did it.", examples=["reclaimed"])
    text: str
    level: str = Field(description="At which level.", examples=["guarantee of project Speech"])
    gpus_before: int
    gpus_now: int
    by: list[Taker] = Field(description="Jobs that got its GPUs; none where a budget or a node was the cause.")
    back_at: datetime | None = Field(description="When it can expect to have them again.")
    back_basis: str | None = Field(description="On what that rests.")


class Explanation(Shape):
    number: int
    array: ArrayPlace | None
    code: str
    text: str
    at: datetime | None
    round: int | None
    checked_at: datetime | None = Field(description="The latest round, in which this was so.")
    preemption: Displaced | None
    ahead: list[Ahead] = Field(
        description="Jobs before it in the queue that wait for GPUs which it could have, too; at most 20."
    )
    apart: int = Field(
        description="Of the first 300 before it in the queue, those that wait for something else, or elsewhere."
    )
    slurm: str | None = Field(description="Of a waiting job: the reason in the words of Slurm's squeue.")
    weighed: list[Weighed] = Field(description="What one more GPU would bring each of your jobs.")
    would_change: str | None
    deadline: str | None = Field(description="Said of its deadline where it is not expected to be kept.")
    emulated: Emulated
    detail: Detail
