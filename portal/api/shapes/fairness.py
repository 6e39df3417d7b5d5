"""How evenly jobs are slowed."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from portal.api.shapes.base import JobState, Page, Shape
from portal.api.shapes.jobs import ArrayPlace, Emulated, JobReason, Person, ProjectRef


class RelativeSpread(Shape):
    lowest: float = Field(description="Speed beside that alone on the cluster: 1 is as fast as alone.")
    median: float
    mean: float
    highest: float


class SlowdownSpread(Shape):
    mean: float = Field(description="Of 1 / relative throughput.")
    highest: float


class Standing(Shape):
    holding: int = Field(description="Jobs that have GPUs, or get them just now.")
    known: int = Field(description="Those of them whose relative throughput is known.")
    waiting: int = Field(description="Jobs that wait for GPUs; those that are held back do not count.")
    relative_throughput: RelativeSpread | None = Field(description="Of the known ones; null: there are none.")
    slowdown: SlowdownSpread | None
    variance: float | None = Field(description="Of their relative throughputs, 0.25 at most.")


class ProjectStanding(Standing):
    project: ProjectRef
    user: Person | None = Field(description="Null: all jobs of the project itself, not of those below it.")


class SlowedJob(Shape):
    number: int
    name: str
    array: ArrayPlace | None
    project: ProjectRef
    owner: Person | None
    state: JobState
    gpus: int = Field(description="That it has now.")
    relative_throughput: float | None = Field(description="1: as fast as alone.")
    slowdown: float | None
    waited_s: float = Field(description="In all its attempts.")
    reason: JobReason
    emulated: Emulated


class FairnessPolicy(Shape):
    name: str
    v_bound: float | None = Field(description="The variance is to stay below it; null: the policy has no bound.")


class Fairness(Shape):
    at: datetime
    policy: FairnessPolicy
    within_bound: bool | None = Field(description="Null without a bound, or while no relative throughput is known.")
    cluster: Standing = Field(description="Of all jobs, those of other projects too.")
    projects: list[ProjectStanding] = Field(description="Worst off first; 200 at most.")
    more_projects: bool
    users: list[ProjectStanding] = Field(description="Each in each of their projects, worst off first; 200 at most.")
    more_users: bool
    worst_off: list[SlowedJob] = Field(description="Jobs that have GPUs, least relative throughput first; 20 at most.")
    longest_waiting: list[SlowedJob] = Field(description="20 at most.")


class FairnessFigures(Shape):
    samples: int = Field(description="Minutes in which there were jobs; figures are means over them.")
    holding: float
    waiting: float
    relative_throughput: RelativeSpread | None = Field(
        description="Lowest and highest are of all that time; the median is the mean of each minute's."
    )
    slowdown: SlowdownSpread | None
    variance: float | None
    v_bound: float | None = Field(description="Of the cluster under a policy that has one; the strictest of the time.")


class FairnessPoint(FairnessFigures):
    at: datetime


class FairnessSeries(Shape):
    project: ProjectRef | None = Field(description="Null: the cluster.")
    user: Person | None
    figures: FairnessFigures = Field(description="Over the whole time.")
    points: list[FairnessPoint] = Field(description="Oldest first; nothing for times without jobs.")


class FairnessHistory(Page):
    from_at: datetime
    to_at: datetime
    results: list[FairnessSeries]


class EndedSlowdown(Shape):
    p50: float
    p90: float
    highest: float


class EndedGroup(Shape):
    key: str
    label: str
    jobs: int = Field(description="That did all their steps, with a slowdown that is known.")
    unknown: int = Field(description="Those of which it is not known how fast they would have been alone.")
    slowdown: EndedSlowdown | None = Field(
        description="Of each job: the time from when it could have started to its end, over the time alone."
    )


class EndedPage(Page):
    from_at: datetime
    to_at: datetime
    results: list[EndedGroup]
