"""What would be with other GPUs, or one more node."""

from __future__ import annotations

from datetime import datetime
from typing import Literal
from uuid import UUID

from pydantic import Field

from portal.api.shapes.base import JobRef, Money, Shape, Source
from portal.api.shapes.jobs import ExpectedStart, Price
from portal.api.shapes.previews import ForeseenEnd
from portal.api.shapes.rounds import RoundGang

Asked = Field(
    description="Ask `what-ifs/{what_if}` with this for starts and ends: the first to ask has them worked out. Null "
    "where there is nothing to foresee."
)


class WhatIfOption(Shape):
    """The job on so many GPUs of a type from its start to its end."""

    type: str
    gpus: int
    steps_per_s: float | None = Field(description="Null, as all that follows from it, where it is not known.")
    source: Source | None
    duration_s: float | None = Field(description="Of what is left of it, once it trains.")
    rate_per_hour: Money | None
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
    running: bool = Field(description="It holds GPUs, which it would leave with a checkpoint.")
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
    """Of the project's jobs; of others only how many."""

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
