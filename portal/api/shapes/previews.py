"""What a job would do that is not submitted."""

from __future__ import annotations

from datetime import datetime
from typing import Literal
from uuid import UUID

from pydantic import Field

from portal.api.shapes.base import GpuRef, Money, OthersJob, Shape, SharePercent
from portal.api.shapes.jobs import Curve, ExpectedStart, JobCluster, Reason
from portal.api.shapes.money import Estimate


class Gang(Shape):
    type: str
    count: int
    share_percent: SharePercent


class PlannedAllocation(Gang):
    gpus: list[GpuRef]
    from_others: bool = Field(description="Some of them have to be left by other jobs first, with a checkpoint.")


class Effect(Shape):
    """On another job: what it would have after the next round without the change, and with it."""

    job: OthersJob
    holds: bool = Field(description="It holds GPUs at present.")
    before: Gang | None = Field(description="Null: nothing, it would wait.")
    after: Gang | None
    slowdown_before: float | None = Field(
        description="Its best throughput alone on the cluster over the planned one; null while it has nothing."
    )
    slowdown_after: float | None
    later_s: float | None = Field(
        description="By how much its end moves if it has that until it ends, or until the previewed job does."
    )


class VarianceChange(Shape):
    """Of relative throughputs over all jobs that hold GPUs, after the next round without the change and with it."""

    before: float | None
    after: float | None
    bound: float | None = Field(description="What the policy keeps it under.")


class PlannedChange(Shape):
    """What the next round would do otherwise."""

    effects: list[Effect] = Field(description="On others, those who lose the most first; at most 20.")
    affected: int = Field(description="How many others would have other GPUs.")
    variance: VarianceChange


class PolicyPreview(PlannedChange):
    """The next round by another policy, beside the one by the policy in force."""

    as_of: datetime
    starting: int = Field(description="Jobs that would have GPUs then, and none by the policy in force.")
    waiting: int = Field(description="Jobs that wait, would start by the policy in force, and then would not.")
    put_out: int = Field(description="Jobs that run, and would leave their GPUs with a checkpoint.")
    grown: int
    shrunk: int
    moved: int = Field(description="To another accelerator type, or to as many other GPUs.")


class Preview(PlannedChange):
    """What the next round would do. Of an array: with its first job."""

    cluster: JobCluster = Field(description="On which it would run.")
    verdict: Literal["now", "later", "never"]
    reason: Reason = Field(description="Why; `refused` where a hard limit would refuse it at submission.")
    would_change: str | None = Field(description="What would let it start.")
    as_of: datetime = Field(description="The state of the cluster that this rests on, some seconds old at most.")
    warnings: list[str] = Field(
        description="What to write otherwise, and whether its engine ends it sooner, as sentences."
    )
    allocation: PlannedAllocation | None = Field(description="What it would start on.")
    prepares: bool = Field(description="Its code or environment is made ready first; it queues after that.")
    jobs: int = Field(description="1, or those of the array.")
    starting: int = Field(description="How many of them (of the first 100) the next round would start.")
    position: int | None = Field(description="In the queue, from 1, where it would wait.")
    estimate: Estimate
    throughput: dict[str, Curve] = Field(description="By accelerator type that it may use.")
    forecast: UUID | None = Field(
        description="Ask `previews/{preview}` with this when it would start: the first to ask has it worked out. Null "
        "where it would not."
    )


class ForeseenEnd(Shape):
    low_at: datetime
    at: datetime
    high_at: datetime
    duration_s: float


class ForeseenCost(Shape):
    low: Money
    amount: Money
    high: Money
    currency: str


class Delayed(Shape):
    job: OthersJob
    later_s: float = Field(description="So much later the middle of its expected start would be.")
    start_before_at: datetime = Field(description="That without this job.")


class Forecast(Shape):
    """From the same futures of the queue with the job and without it."""

    as_of: datetime
    start: ExpectedStart
    end: ForeseenEnd | None = Field(description="If it kept the GPUs that it starts on.")
    cost: ForeseenCost | None
    gang: Gang | None = Field(description="What most futures started it on; else the least that it may have.")
    delayed: list[Delayed] = Field(description="Who would start later for it, the largest delay first; at most 10.")
    others_delayed: int = Field(description="How many would.")
    futures: int


class PreviewForecast(Shape):
    status: Literal["pending", "done"]
    forecast: Forecast | None
