"""How evenly jobs are slowed down."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

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
    running: int = Field(description="Jobs that have GPUs, or get them just now.")
    known: int = Field(description="Those of them whose relative throughput is known.")
    waiting: int = Field(description="Jobs that wait for GPUs; those on hold do not count.")
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
    running: float
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


class Factor(Shape):
    name: str = Field(description="`age`, `fair_share`, `job_size`, `qos`, or a resource.")
    weight: float = Field(description="The most that it can add.")
    factor: float = Field(ge=0, le=1)
    points: float = Field(description="Weight times factor.")


class Priority(Shape):
    number: int
    name: str
    array: ArrayPlace | None
    project: ProjectRef
    owner: Person | None
    rank: int = Field(description="Place among all jobs that wait for GPUs, those of other projects too; from 1.")
    priority: int = Field(description="site + points - nice, truncated, at least 1.")
    site: int = Field(description="What the job file's `priority` adds; below 0 it takes off.")
    nice: int = Field(ge=0, description="What the job file's `nice` takes off.")
    factors: list[Factor]


class PriorityPage(Page):
    in_force: bool = Field(description="False: another policy decides; these are by the defaults of `multifactor`.")
    at: datetime
    results: list[Priority]


class CoursePoint(Shape):
    at: datetime
    priority: int
    factors: list[Factor]


class JobPriority(Shape):
    number: int
    name: str
    array: ArrayPlace | None
    project: ProjectRef
    owner: Person | None
    rank: int | None = Field(description="Place among all jobs that wait for GPUs, from 1; null: it does not wait.")
    priority: int | None = Field(description="site + points - nice, truncated, at least 1.")
    site: int = Field(description="What the job file's `priority` adds; below 0 it takes off.")
    nice: int = Field(ge=0, description="What the job file's `nice` takes off.")
    factors: list[Factor] = Field(description="Of a waiting job.")
    in_force: bool = Field(description="False: another policy decides; these are by the defaults of `multifactor`.")
    at: datetime
    waiting: int = Field(description="How many jobs wait for GPUs.")
    course: list[CoursePoint] = Field(
        description="Until its age counts no more: it ages, use is forgotten, what runs goes on to its end."
    )


class Share(Shape):
    project: ProjectRef
    user: Person | None = Field(description="Null for the project's own row, and for jobs without an owner.")
    is_user: bool
    level: int = Field(description="How deep in the tree of what you see; its users are one deeper.")
    shares: float
    norm_shares: float = Field(description="Its part of the cluster.")
    usage_gpu_hours: float = Field(description="Decayed, with billing weights.")
    norm_usage: float = Field(description="Its part of all usage.")
    effective_usage: float = Field(description="With its part of what those beside it used.")
    level_fs: float | None = Field(description="Share over usage among those beside it; null: nothing was used.")
    factor: float | None = Field(description="Fair share factor; null for projects under Fair Tree, which ranks users.")


class SharePage(Page):
    in_force: bool = Field(description="False: another policy decides; these are by the defaults of `multifactor`.")
    at: datetime
    form: Literal["classic", "fair_tree"]
    results: list[Share]


PreemptMode = Annotated[
    Literal["requeue", "cancel"],
    Field(description="What happens to its own jobs when they are preempted: they queue again, or end."),
]


class SharePoint(Shape):
    at: datetime
    norm_shares: float = Field(description="Its part of the cluster then.")
    usage_gpu_hours: float = Field(description="Decayed, with billing weights.")
    effective_usage: float
    factor: float | None = Field(description="Null under Fair Tree, which ranks users alone.")


class ShareCourse(Shape):
    project: ProjectRef
    points: list[SharePoint] = Field(
        description="Oldest first, at most 151: of many the lowest and the highest use of each stretch, and the newest."
    )


class ShareHistory(Page):
    from_at: datetime
    results: list[ShareCourse]


class Qos(Shape):
    name: str
    priority: int
    preempts: list[str] = Field(description="Levels whose jobs it may preempt.")
    preempt_mode: PreemptMode
    for_everybody: bool
    projects: list[str] = Field(description="Keys of the projects that may ask for it, with all below them.")
    is_default: bool
    max_gpus: int | None
    max_running_jobs: int | None
    max_gpus_per_user: int | None
    max_running_jobs_per_user: int | None


class QosPage(Page):
    results: list[Qos]
