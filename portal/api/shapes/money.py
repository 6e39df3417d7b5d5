"""Limits, prices and usage."""

from __future__ import annotations

from datetime import date, datetime
from typing import Literal

from pydantic import Field

from portal.api.shapes.base import Money, Page, Shape, Source
from portal.api.shapes.jobs import Price

QuotaKind = Literal["gpus", "running_jobs", "queued_jobs", "gpu_hours", "money"]

Period = Literal["day", "week", "month"]

Number = Money


class Quota(Shape):
    id: int
    name: str = Field(examples=["GPU-hours per month"])
    level: str = Field(description="Where it sits, in words.", examples=["project Vision"])
    project: str | None = Field(description="Key of the project that it sits on; all below count too.")
    user: str | None = Field(description="Email of the user whose jobs it counts; null: of all users.")
    kind: QuotaKind
    accelerator_type: str | None
    period: Period | None
    limit: Number = Field(description="GPUs, jobs, GPU-hours, or an amount in the currency.", examples=["8"])
    used: Number = Field(description="Present use, in the same unit.", examples=["5"])
    hard: bool = Field(description="True: refuses at submission. False: jobs wait.")
    used_percent: int
    reached: bool = Field(description="No job starts; a hard budget suspends jobs that can write a checkpoint.")
    warned_at: datetime | None = Field(description="When the notice about 80 % of the period's budget was sent.")
    reached_at: datetime | None = Field(description="When the notice about all of it was sent.")
    period_starts_at: datetime | None
    period_ends_at: datetime | None


class QuotaPage(Page):
    results: list[Quota]


class BindingQuotas(Shape):
    results: list[Quota] = Field(description="Outermost level first; at most 500.")
    more: bool = Field(description="There are more than 500; those further in are left out.")


class Rate(Shape):
    id: int
    resource: Literal["gpu", "cpu", "memory"]
    accelerator_type: str | None = Field(description="Of GPUs only.")
    cluster: str | None = Field(description="Where it counts instead of the price for all clusters. Null: all.")
    price_per_hour: Money = Field(description="Of one GPU, one CPU or one GiB of memory.")
    currency: str
    valid_from_at: datetime
    valid_to_at: datetime | None


class RatePage(Page):
    results: list[Rate]


class Discount(Shape):
    id: int
    project: str = Field(description="Key of the project; it is also for all below without one of their own.")
    percent: Money
    valid_from_at: datetime
    valid_to_at: datetime | None


class DiscountPage(Page):
    results: list[Discount]


class UsedHours(Shape):
    gpu_hours: float = Field(description="Held.")
    measured_gpu_hours: float = Field(description="Of those, over which it is known how busy the GPUs were.")
    used_gpu_hours: float | None = Field(description="Occupancy times utilisation, of those measured; null: none were.")
    emulated: bool = Field(
        description="Some of it was on emulated accelerators: their utilisation is that of processes."
    )


class TypeHours(UsedHours):
    type: str


class UsageRow(UsedHours):
    key: str = Field(description="Key of the project, email, number of the job, date, month or type.")
    label: str
    jobs: int = Field(description="Jobs with occupancy.")
    by_type: list[TypeHours]
    cost: Money


class UsagePage(Page):
    currency: str
    from_day: date
    to_day: date
    results: list[UsageRow]


class Option(Shape):
    """Duration and cost of the job on this many GPUs of a type, if it kept them until its end."""

    type: str
    gpus: int
    steps_per_s: float
    source: Source
    age_s: float | None
    samples: int
    duration_s: float
    price: Price
    price_per_hour: Money
    amount: Money
    low: Money
    high: Money
    basis: str


class DiscountInForce(Shape):
    percent: Money
    project: str = Field(description="Key of the project whose discount it is: the job's, or the nearest above.")
    name: str = Field(description="Its name.")


class Estimate(Shape):
    currency: str
    project: str
    options: list[Option] = Field(description="Per accelerator type its minimum and what it gains most from.")
    low: Money | None = Field(description="The least of all options; null where nothing is known of its speed.")
    high: Money | None
    basis: str
    discount: DiscountInForce | None = Field(description="What all amounts are less already; null: there is none.")
    jobs: int = Field(description="1, or those of the array; all amounts are of one of them.")
    refused_by: list[str] = Field(description="What submitting it would be refused with now, by limit.")
    waits_for: list[str] = Field(
        description="What soft limits lack that it, or some of the array, would wait for now, by limit."
    )


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
