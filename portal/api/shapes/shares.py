"""Priorities and fair share."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from portal.api.shapes.base import Page, Shape
from portal.api.shapes.jobs import ArrayPlace, Person, ProjectRef


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
    user: Person | None = Field(description="Null for the project's own row, and for jobs that are nobody's.")
    is_user: bool
    level: int = Field(description="How deep in the tree of what you see; its users are one deeper.")
    shares: float
    norm_shares: float = Field(description="Its part of the cluster.")
    usage_gpu_hours: float = Field(description="Decayed, with billing weights.")
    norm_usage: float = Field(description="Its part of everybody's usage.")
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
    Field(description="What becomes of its own jobs that are put out: they queue again, or end."),
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
    preempts: list[str] = Field(description="Levels whose jobs it may put out.")
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
