"""Stored rounds, and the result of another plan for one."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import Field

from portal.api.shapes.base import Detail, JobState, OthersJob, Page, Shape, SharePercent
from portal.api.shapes.jobs import Reason

MoveKind = Literal["start", "rescale", "preempt"]
Occupants = Annotated[list[list[int]], Field(description="Of each GPU the numbers of the jobs on it.")]


class RoundGang(Shape):
    type: str
    count: int


class RoundMoves(Shape):
    start: int
    rescale: int
    preempt: int


class KeptRound(Shape):
    round: int
    at: datetime
    policy: str
    parameters: Detail
    moves: RoundMoves
    rejected: str | None = Field(description="Why the policy's plan was not applied, where it was not.")
    seconds: float = Field(description="That planning took.")


class KeptRoundPage(Page):
    results: list[KeptRound]


class RoundCounts(Shape):
    nodes: int
    gpus: int
    gpus_usable: int
    gpus_allocated: int
    jobs: int
    running: int
    waiting: int


class RoundNode(Shape):
    name: str
    type: str
    schedulable: bool
    lost: bool
    before: Occupants
    after: Occupants


class RoundJob(Shape):
    job: OthersJob
    state: JobState
    priority: int
    min_gpus: int
    max_gpus: int | None
    types: list[str] = Field(description="Empty: any.")
    share_percent: SharePercent
    remaining_steps: float
    restartable: bool
    limits: list[str] = Field(description="That bind it, outermost level first.")
    before: RoundGang | None
    after: RoundGang | None = Field(description="Null: nothing, it waits.")
    move: MoveKind | None
    reason: Reason | None


class RoundDetail(KeptRound):
    cluster: str
    figures: dict[str, float]
    before: int | None = Field(description="The kept round before it.")
    after: int | None
    counts: RoundCounts
    nodes: list[RoundNode] = Field(description="300 at most.")
    jobs_total: int
    jobs: list[RoundJob] = Field(description="500 at most: those that it moved first, then those with GPUs.")


class ReplayAsked(Shape):
    replay: UUID = Field(description="Ask `replays/{replay}` with this.")


class ReplayedJob(Shape):
    job: OthersJob
    change: Literal["gained", "lost", "moved", "same"] = Field(
        description="Of its GPUs by the replay against those by the plan of then."
    )
    before: RoundGang | None
    recorded: RoundGang | None
    replayed: RoundGang | None
    reason_recorded: Reason | None
    reason_replayed: Reason | None


class Replay(Shape):
    round: int
    policy: str
    parameters: Detail
    seconds: float
    same_plan: bool = Field(description="The plan is the recorded one to its last letter.")
    same_gpus: bool = Field(description="Every job has the GPUs that it got then.")
    notes: list[str] = Field(description="What this policy would have been shown, and the one of then was not.")
    rejected: str | None
    moves: RoundMoves
    figures: dict[str, float]
    changes: dict[str, int] = Field(description="How many jobs by `change`.")
    nodes: list[RoundNode]
    jobs_total: int
    jobs: list[ReplayedJob] = Field(description="500 at most: those with other GPUs first.")


class ReplayAnswer(Shape):
    status: Literal["pending", "done", "failed"]
    error: str
    replay: Replay | None


class RoundCase(Shape):
    """`policy-case/1`, which `manage.py solve` reads (docs/policies.md)."""

    schema_: Literal["policy-case/1"] = Field(alias="schema")
    source: Detail
    policies: list[str] = Field(description="Whose problem it is.")
    policy: str = Field(description="Of the round.")
    parameters: Detail
    cluster_spec: dict[str, int]
    worker_types: list[str]
    jobs: list[Detail]
    pair_throughputs: dict[str, Detail]
    entities: dict[str, Detail]
    prices: dict[str, float]
    memory: Detail
    left_out: list[str] = Field(description="What such a case cannot say.")
