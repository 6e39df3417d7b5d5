"""Simulations of the policy lab and their results."""

from __future__ import annotations

from datetime import datetime
from typing import Literal
from uuid import UUID

from pydantic import Field

from portal.api.shapes.base import Detail, Money, Page, Shape
from portal.lab.spec import Spec

SimulationState = Literal["queued", "running", "succeeded", "failed", "cancelled"]
Role = Literal["candidate", "as_it_was"]
Point = list[float]


class TrialSpread(Shape):
    mean: float
    p50: float
    p99: float


class TrialWait(Shape):
    mean: float
    p50: float
    p95: float
    p99: float


class TrialSlowdown(Shape):
    mean: float
    p99: float
    max: float
    variance: float


class TrialFairness(Shape):
    max: float
    jain: float


class TrialMetrics(Shape):
    jobs: int
    finished: int
    makespan_s: float
    jct_s: TrialSpread
    wait_s: TrialWait
    utilisation: float
    slowdown: TrialSlowdown
    finish_time_fairness: TrialFairness
    restarts: int
    cost: Money
    energy_kwh: float | None = Field(description="Null where the watts of a type are not known.")
    rounds: int
    fallbacks: int = Field(description="Rounds in which the policy's solver failed and all jobs kept their GPUs.")
    wall_s: float


class SimulationTrial(Shape):
    id: UUID
    index: int
    policy: str
    parameters: Detail
    given: Detail
    label: str
    seed: int
    role: Role
    state: SimulationState
    error: str
    metrics: TrialMetrics | None


class SimulationProgress(Shape):
    trials: int
    trials_done: int
    jobs: int
    jobs_done: int
    eta_s: float | None


class WorkloadSummary(Shape):
    jobs: int
    left_out: int
    from_at: datetime | None
    to_at: datetime | None
    gpu_hours: float


class Simulation(Shape):
    id: UUID
    number: int
    name: str
    state: SimulationState
    reason: str
    created_by: str
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    cluster: str
    spec: Spec
    progress: SimulationProgress
    workload_summary: WorkloadSummary | None
    trials: list[SimulationTrial]


class SimulationPage(Page):
    results: list[Simulation]


class SimulationTrace(Shape):
    id: UUID
    name: str
    format: str
    jobs: int
    left_out: int
    why_left_out: str
    span_s: float
    gpu_hours: float


class SimulationColumn(Shape):
    key: str
    label: str
    unit: str
    better: Literal["low", "high", "none"]


class SimulationValue(Shape):
    mean: float | None
    low: float | None
    high: float | None


class SimulationRow(Shape):
    policy: str
    parameters: Detail
    label: str
    role: Role
    trials: list[UUID]
    values: dict[str, SimulationValue]
    best: list[str]
    worst: list[str]


class SimulationTable(Shape):
    columns: list[SimulationColumn]
    rows: list[SimulationRow]


class SimulationCurve(Shape):
    trial: UUID
    label: str
    points: list[Point]


class SimulatedSlowdown(Shape):
    project: str
    mean: float
    max: float
    jobs: int


class SimulatedSlowdowns(Shape):
    trial: UUID
    label: str
    projects: list[SimulatedSlowdown]


class SimulationCharts(Shape):
    jct_cdf: list[SimulationCurve]
    wait_over_time: list[SimulationCurve]
    utilisation_over_time: list[SimulationCurve]
    utilisation_cdf: list[SimulationCurve]
    slowdown_by_project: list[SimulatedSlowdowns]


class SimulationGpu(Shape):
    gpu: int
    node: str
    type: str


class SimulationSpan(Shape):
    job: str
    project: str
    gpu_from: int
    gpu_to: int = Field(description="The last of them.")
    start_s: float
    end_s: float


class SimulationGantt(Shape):
    trial: UUID
    label: str
    gpus: int
    rows: list[SimulationGpu]
    spans: list[SimulationSpan]
    span_s: float


class Difference(Shape):
    jobs: int
    wait_base_s: float
    wait_other_s: float
    difference_s: float = Field(description="Below 0: they would have waited less under `other`.")
    slowdown_base: float
    slowdown_other: float


class ProjectDifference(Difference):
    project: str


class UserDifference(Difference):
    user: str


class JobDifference(Shape):
    job: str
    project: str
    user: str
    number: int | None
    wait_base_s: float
    wait_other_s: float
    jct_base_s: float
    jct_other_s: float
    difference_s: float


class SimulationComparison(Shape):
    base: UUID
    other: UUID
    projects: list[ProjectDifference]
    users: list[UserDifference]
    jobs: list[JobDifference]


class FidelityRow(Shape):
    key: Literal["jct_mean_s", "jct_p50_s", "jct_p99_s", "wait_mean_s", "wait_p95_s", "utilisation", "makespan_s"]
    label: str
    recorded: float
    simulated: float
    error: float = Field(description="Of what was recorded: 0.1 is a tenth too much.")


class FidelityCurves(Shape):
    recorded: list[Point]
    simulated: list[Point]


class SimulationFidelity(Shape):
    available: bool
    why: str
    policy: str
    rows: list[FidelityRow]
    jobs: int
    notes: list[str]
    jct_cdf: FidelityCurves
