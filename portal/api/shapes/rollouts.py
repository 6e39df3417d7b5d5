"""Rollouts of policies."""

from __future__ import annotations

from datetime import datetime
from typing import Literal
from uuid import UUID

from pydantic import Field

from portal.api.shapes.base import Detail, Page, Shape
from portal.rollouts.bounds import Bounds

RolloutPhase = Literal["shadow", "live", "kept", "rolled_back", "cancelled", "superseded"]
Indicator = Literal["wait_p95_s", "slowdown_variance", "utilisation"]


class RolloutIndicators(Shape):
    wait_p95_s: float | None
    slowdown_variance: float | None
    utilisation: float | None = Field(description="While jobs waited.")
    waits: int = Field(description="Jobs that the wait is said of.")
    ended: int = Field(description="Jobs that the variance is said of.")
    samples: int = Field(description="Points of time in which jobs waited.")


class RolloutLimits(Shape):
    """Resolved bounds; null: not watched, or nothing to refer to."""

    wait_p95_s: float | None
    slowdown_variance: float | None
    utilisation: float | None


class PolicyAndParameters(Shape):
    policy: str
    parameters: Detail


class RolloutSimulation(Shape):
    id: UUID
    number: int
    name: str


class ShadowSide(Shape):
    gpus: float | None = Field(description="In use after the round, on average.")
    variance: float | None = Field(description="Of relative throughputs, on average where both have one.")
    starting: int
    preempted: int


class ShadowTotals(Shape):
    rounds: int
    same: int = Field(description="Rounds in which every job would have had the same.")
    skipped: int
    failed: int
    error: str
    last_round: int | None
    different_jobs: float | None
    seconds: float | None
    live: ShadowSide
    candidate: ShadowSide


class Rollout(Shape):
    id: UUID
    number: int
    phase: RolloutPhase
    policy: str
    parameters: Detail
    label: str
    simulation: RolloutSimulation | None
    created_by: str | None
    created_at: datetime
    bounds: Bounds
    guard_s: int
    least_jobs: int
    least_s: int
    prediction: RolloutIndicators | None
    before: RolloutIndicators | None = Field(description="As long a time before it was promoted.")
    limits: RolloutLimits | None
    promoted_by: str | None
    promoted_at: datetime | None
    guard_until: datetime | None
    previous: PolicyAndParameters | None
    problem: str = Field(description="Why the last check could not be made.")
    ended_by: str | None = Field(description="Null where the portal ended it.")
    ended_at: datetime | None
    outcome: str
    shadow: ShadowTotals


class RolloutStep(Shape):
    at: datetime
    action: str
    by: str | None = Field(description="Null: the portal itself.")
    why: str | None


class RolloutDetail(Rollout):
    steps: list[RolloutStep] = Field(description="From the audit log, oldest first.")


class RolloutPage(Page):
    results: list[Rollout]


class RolloutProposal(Shape):
    policy: str = Field(description="In force now.")
    parameters: Detail
    prediction: RolloutIndicators | None
    before: RolloutIndicators
    limits: RolloutLimits = Field(description="What the default bounds come to.")


class ShadowFigures(Shape):
    gpus: float
    running: int
    starting: int
    resized: int
    preempted: int
    variance: float | None
    relative_throughput: float | None


class ShadowGang(Shape):
    type: str
    count: int


class ShadowJob(Shape):
    number: int
    name: str
    project: str
    now: ShadowGang | None
    live: ShadowGang | None
    candidate: ShadowGang | None
    moved_by_live: bool
    moved_by_candidate: bool
    later_s: float | None
    why: str


class ShadowMove(Shape):
    number: int
    kind: Literal["start", "rescale", "preempt"]
    gang: ShadowGang | None
    text: str


class ShadowDecision(Shape):
    id: int
    round: int
    at: datetime
    last_round: int = Field(description="The last of the rounds in a row in which the same jobs differed alike.")
    last_at: datetime
    rounds: int
    seconds: float
    different: int
    elsewhere: int = Field(description="Jobs with as many GPUs of the type, but other ones.")
    live: ShadowFigures
    candidate: ShadowFigures
    jobs: list[ShadowJob] = Field(description="50 at most, those first who lose the most.")
    moves: list[ShadowMove] = Field(description="Of the candidate, 200 at most.")


class ShadowDecisionPage(Page):
    results: list[ShadowDecision]


class GuardCheck(RolloutIndicators):
    at: datetime
    broken: list[Indicator]


class GuardChecks(Shape):
    checks: list[GuardCheck] = Field(description="Oldest first; thinned out where there are more than 400.")
