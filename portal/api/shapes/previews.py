"""Previews of unsubmitted jobs."""

from __future__ import annotations

from datetime import datetime
from typing import Literal
from uuid import UUID

from pydantic import Field

from portal.api.shapes.base import GpuRef, JobRef, Money, OthersJob, Shape, SharePercent, Source
from portal.api.shapes.jobs import Curve, ExpectedStart, JobCluster, Price, Reason
from portal.api.shapes.money import Estimate
from portal.api.shapes.rounds import RoundGang


class Gang(Shape):
    type: str
    count: int
    share_percent: SharePercent


class PlannedAllocation(Gang):
    gpus: list[GpuRef]
    from_others: bool = Field(description="Some of them have to be left by other jobs first, with a checkpoint.")


class Effect(Shape):
    """On another job: its gang after the next round without the change, and with it."""

    job: OthersJob
    running: bool = Field(description="It has GPUs at present.")
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
    """What the next round would do differently."""

    effects: list[Effect] = Field(description="On others, those who lose the most first; at most 20.")
    affected: int = Field(description="How many others would have other GPUs.")
    variance: VarianceChange


class PolicyPreview(PlannedChange):
    """The next round under another policy, compared with the policy in force."""

    as_of: datetime
    starting: int = Field(description="Jobs that would have GPUs then, and none by the policy in force.")
    waiting: int = Field(description="Jobs that wait, would start by the policy in force, and then would not.")
    preempted: int = Field(description="Running jobs that would be preempted, with a checkpoint.")
    grown: int
    shrunk: int
    moved: int = Field(description="To another accelerator type, or to as many other GPUs.")


class Preview(PlannedChange):
    """What the next round would do. For an array: with its first job."""

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


Asked = Field(
    description="Ask `what-ifs/{what_if}` with this for starts and ends: the first to ask has them worked out. Null "
    "where there is nothing to foresee."
)


class WhatIfOption(Shape):
    """The job on this many GPUs of a type from its start to its end."""

    type: str
    gpus: int
    steps_per_s: float | None = Field(description="Null, as all that follows from it, where it is not known.")
    source: Source | None
    duration_s: float | None = Field(description="Of what is left of it, once it trains.")
    price_per_hour: Money | None
    amount: Money | None
    low: Money | None
    high: Money | None
    basis: str | None
    barred: list[str] = Field(description="Why it would be refused, or could never start so.")
    waits_for: list[str] = Field(description="Soft limits that it would wait for.")


class WhatIf(Shape):
    as_of: datetime
    currency: str
    job: int | None = Field(description="Its number; null for one that is not submitted.")
    steps: int = Field(description="That are left.")
    running: bool = Field(description="It runs, and would be preempted with a checkpoint.")
    options: list[WhatIfOption]
    what_if: UUID | None = Asked


class ForeseenOption(Shape):
    type: str
    gpus: int
    start: ExpectedStart
    end: ForeseenEnd | None


class NodeWhatIf(Shape):
    as_of: datetime
    type: str
    gpus: int = Field(description="Of the node that is added: as many as the largest of its type has.")
    nodes_now: int
    gpus_now: int
    price: Price
    currency: str
    project: str
    what_if: UUID | None = Asked


class SoonerJob(Shape):
    job: JobRef
    start_before: ExpectedStart
    start_after: ExpectedStart
    sooner_s: float = Field(description="By so much the middle of its expected start moves.")
    gang_before: RoundGang | None = Field(description="On which most futures started it.")
    gang_after: RoundGang | None
    end_before_at: datetime | None = Field(description="If it kept those.")
    end_after_at: datetime | None


class GrownJob(Shape):
    job: JobRef
    now: RoundGang | None
    before: RoundGang | None = Field(description="After the next round as things are.")
    after: RoundGang | None = Field(description="After the next round with the node.")


class ForeseenNode(Shape):
    """The effect on the project's jobs; for others only their number."""

    as_of: datetime
    waiting_total: int
    waiting: list[SoonerJob] = Field(description="100 at most.")
    running_total: int
    running: list[GrownJob] = Field(description="100 at most.")
    others_sooner: int = Field(description="Jobs of other projects that would start at least 10 s sooner.")
    others_growing: int = Field(description="Jobs of other projects that would have more GPUs after the next round.")
    futures: int


class WhatIfAnswer(Shape):
    status: Literal["pending", "done"]
    options: list[ForeseenOption] | None = Field(description="Of a job.")
    node: ForeseenNode | None
