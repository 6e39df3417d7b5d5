"""A job and its details."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import ConfigDict, Field

from portal.api.shapes.base import Detail, GpuRef, JobRef, JobState, Money, Page, RunState, Shape, SharePercent, Source

SECONDS = "POSIX seconds"
Emulated = Annotated[bool, Field(description="It runs, or would run, on emulated accelerators.")]
EnvironmentState = Literal["building", "ready", "failed"]


class ProjectRef(Shape):
    key: str
    name: str


class JobCluster(Shape):
    name: str
    choice: str | None = Field(
        description="Where the job file left it to the portal: why that one.",
        examples=["Cluster lab: would end 14 min earlier than on a100s."],
    )


class Person(Shape):
    name: str
    email: str


class Reason(Shape):
    code: str = Field(description="For machines.", examples=["no_room"])
    text: str = Field(description="For people.")


class JobReason(Reason):
    slurm: str | None = Field(description="Of a waiting job: in the words of Slurm's squeue.", examples=["Resources"])


class JobRetry(Shape):
    at: datetime | None = Field(description="From then on it may start.")
    attempt: int = Field(description="Which attempt it will be.")
    of: int | None = Field(description="How many attempts there may be; null: losses of nodes do not count.")
    why: str = Field(description="How the attempt before ended.", examples=["Failed with code 1"])


class GpuRange(Shape):
    min: int
    max: int | None
    types: list[str]
    share_percent: SharePercent
    memory_mib: int | None = Field(description="Of each GPU; null: it claims none.")


class JobAllocation(Shape):
    type: str
    count: int
    epoch: int
    gpus: list[GpuRef]
    share_percent: SharePercent


class Throughput(Shape):
    steps_per_s: float | None = Field(description="Measured now.")
    predicted_steps_per_s: float | None
    source: Source | None = Field(description="What the prediction rests on.")
    age_s: float | None
    samples: int = Field(description="Reports of runs that the prediction rests on.")


class CostNow(Shape):
    so_far: Money
    estimated: Money | None
    currency: str


class Times(Shape):
    queueing_s: float
    launching_s: float
    running_s: float


class RunRef(Shape):
    id: UUID
    attempt: int
    epoch: int


class Exit(Shape):
    reason: str | None = Field(examples=["done", "user_error", "out_of_memory"])
    message: str | None
    exit_code: int | None
    signal: int | None


class JobHold(Shape):
    """A job on hold is not scheduled until it is released."""

    kind: Literal["user", "admin", "cost", "idle"] = Field(
        description="An `admin` hold is released by administrators only."
    )
    by: str | None = Field(description="Null: the portal, at a limit of the job's own or by the rule for idle jobs.")
    at: datetime
    text: str


class ExpectedStart(Shape):
    """When a waiting job is expected to get GPUs: four of five start between `p10_at` and `p90_at`, half by
    `p50_at`."""

    p10_at: datetime | None
    p50_at: datetime | None
    p90_at: datetime | None
    as_of: datetime | None = Field(description="When that was worked out.")
    basis: Literal["simulated", "interpolated"] | None = Field(
        description="Interpolated from the work ahead: of those behind the first 500, and of those whose start most "
        "of the simulated futures did not reach."
    )
    run_time: Literal["steps", "history", "time_limit", "default"] | None = Field(
        description="What this job's own run time is predicted from: its steps and throughput, what its owner's jobs "
        "took before, its max_duration, or nothing."
    )
    outcomes: int = Field(description="Earlier forecasts that the interval is calibrated on; 0 where too few.")
    reason: Reason | None = Field(
        description="Why it cannot be said: held, dependency, never, no_profile, node_unavailable, period (of a "
        "budget, which the text says the end of), limit, unknown or pending."
    )


class ArrayPlace(Shape):
    """Where the job is in its array."""

    number: int = Field(description="Number of the array, which no job has.")
    index: int
    size: int


class Idle(Shape):
    """A job that holds GPUs without using them, by the cluster's rule."""

    kind: Literal["no_step", "low_utilisation"]
    since_at: datetime
    warned_at: datetime
    release_at: datetime | None = Field(description="When it is suspended with its checkpoint; null: never.")
    extended_until_at: datetime | None
    extensions_left: int
    text: str


class ResumedFrom(Shape):
    job: int | None = Field(description="Number of the job whose checkpoint it is.")
    step: int


class Job(Shape):
    model_config = ConfigDict(extra="forbid")

    id: UUID
    number: int
    name: str
    project: ProjectRef
    cluster: JobCluster
    owner: Person | None
    state: JobState
    run_state: RunState
    reason: JobReason
    retry: JobRetry | None = Field(description="While it waits to be tried again: `stop-retrying` ends that.")
    ending: bool = Field(description="It has ended, and its program still has the time that it gets to leave.")
    fetching: str | None = Field(
        description="While it launches and data is fetched: how far that is.",
        examples=["fetching data imagenet: 1.2 of 4.0 GiB"],
    )
    model_type: str | None
    command: str | None
    warnings: list[str] = Field(
        description="What to write otherwise, and whether its engine ends it sooner, as sentences."
    )
    total_steps: int
    step: int
    progress: float = Field(ge=0, le=1)
    batch_size: int
    gpus: GpuRange
    priority: int = Field(description="What the queue goes by: the job file's priority less its nice.")
    nice: int
    qos: str | None = Field(description="QoS.")
    array: ArrayPlace | None
    partition: str | None = Field(description="Set of nodes on which it runs.")
    restartable: bool = Field(description="It can be stopped and started again, by its owner's word or the SDK's.")
    labels: dict[str, str]
    deadline_at: datetime | None
    max_cost: Money | None
    max_duration_s: float | None
    hold: JobHold | None
    idle: Idle | None = Field(description="Set while it is warned.")
    resubmit_of: int | None = Field(description="Number of the job that this one repeats with changes.")
    resumed_from: ResumedFrom | None
    emulated: Emulated
    pace_missed: bool
    allocation: JobAllocation | None
    throughput: Throughput
    relative_throughput: float | None
    slowdown: float | None
    protected_until_at: datetime | None
    submitted_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    expected_end_at: datetime | None
    expected_end_low_at: datetime | None
    expected_end_high_at: datetime | None
    queue_position: int | None
    expected_start: ExpectedStart | None = Field(description="Only while the job waits.")
    cost: CostNow
    times: Times
    resizes: int
    run: RunRef
    exit: Exit | None
    can_cancel: bool


class JobPage(Page):
    results: list[Job]


class EnvironmentRef(Shape):
    digest: str = Field(examples=["9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"])
    state: EnvironmentState


class RunMaterial(Shape):
    commit: str | None = Field(
        description="The commit that the job's ref named.", examples=["4b825dc642cb6eb9a060e54bf8d69288fbee4904"]
    )
    code_bytes: int | None
    environment: EnvironmentRef | None


class Run(Shape):
    """One attempt at a job."""

    id: UUID
    attempt: int
    epoch: int
    state: JobState
    run_state: RunState
    reason: Reason
    step: int
    checkpoint_step: int
    resizes: int
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    times: Times
    exit: Exit | None
    material: RunMaterial | None = Field(description="Null where it brought neither code nor environment.")


class Checkpoint(Shape):
    attempt: int
    step: int
    at: datetime
    path: str
    bytes: int
    seconds: float


class CurvePoint(Shape):
    count: int
    steps_per_s: float
    source: Source
    age_s: float | None
    samples: int
    relative_error: float | None = Field(
        description="Of an estimate: nine of ten such estimates are off by no more; 0.3 is 30 % either way."
    )


class Curve(Shape):
    """Throughput on 1, 2, ... GPUs of one accelerator type."""

    steps_per_s: list[float]
    source: Source
    age_s: float | None = Field(description="Age of the newest measurement.")
    samples: int = Field(description="Reports of runs that it rests on.")
    points: list[CurvePoint] = Field(description="The numbers that the curve is drawn through.")


class JobLink(Shape):
    name: str = Field(examples=["TensorBoard"])
    url: str = Field(examples=["https://tensorboard.example.org/#scalars"])
    leads_here: bool = Field(
        description="It leads to the portal's own machine or name. Opened in the browser that is signed in here, it "
        "gives the session to the program that listens there: show it as text."
    )
    may_lead_here: bool = Field(
        description="The portal has no HTTPS name of its own and jobs run on its machine: a page behind any link can "
        "send the browser on to a port where a job listens. Show it as text."
    )


class Neighbour(Shape):
    """Another job on the same GPU."""

    number: int
    project: str
    share_percent: SharePercent
    state: JobState
    slowdown: float | None = Field(
        description="Of this job beside such a job alone, as measured, against the whole GPU; null: never measured."
    )
    samples: int = Field(description="Reports that this rests on.")


class Sharing(Shape):
    """For a fractional job: the other jobs on its GPU, and the cost of sharing."""

    share_percent: SharePercent
    memory_mib: int | None
    whole_steps_per_s: float | None = Field(description="On the whole GPU; null where that is not known.")
    expected_slowdown: float | None = Field(
        description="Against the whole GPU; until such a part was measured, as if others filled the rest."
    )
    expected_source: Literal["pair", "part", "share"] = Field(
        description="Measured beside such a neighbour; measured on such a part; or reckoned from the share."
    )
    measured_slowdown: float | None = Field(description="Against the whole GPU, by the last reports.")
    neighbours: list[Neighbour] = Field(description="Jobs with a share of its GPU now, the largest first.")


class JobDetail(Job):
    spec: Detail = Field(description="The job file as it was understood.")
    runs: list[Run] = Field(description="Attempts, newest first.")
    links: list[JobLink] = Field(description="What its program said is to be seen elsewhere, by name; at most 50.")
    checkpoints: list[Checkpoint] = Field(description="Newest first, at most 50.")
    curve: dict[str, Curve] = Field(description="By accelerator type.")
    sharing: Sharing | None = Field(description="Null where it has whole GPUs, or none.")


class Event(Shape):
    id: int
    at: datetime
    kind: str = Field(examples=["submitted", "ASSIGNED", "node_lost"])
    job: JobRef | None
    project: str | None = Field(description="Key of the project; null: the whole cluster.")
    text: str
    detail: Detail
    to_state: str


class EventPage(Page):
    results: list[Event]


class Log(Shape):
    rank: int
    ranks: list[int]
    offset: int
    next_offset: int
    size: int
    text: str
    complete: bool = Field(description="The run has ended and this reaches its last byte.")


class Metrics(Shape):
    series: dict[str, list[tuple[float, int, float]]] = Field(description=f"Name -> [[{SECONDS}, step, value], ...].")
    names: list[str] = Field(description="All that the job reported.")
    predicted_steps_per_s: list[tuple[float, float]] = Field(description=f"[[{SECONDS}, value], ...]")
    emulated: Emulated


class ResourceParts(Shape):
    """Fractions, 0 to 1, of one device; null: unknown."""

    gpu: float | None = Field(description="Of its time.")
    gpu_memory: float | None
    gpu_cores: float | None = Field(description="Warps that were active, of those that its cores could hold.")
    pcie: float | None = Field(description="Both directions, of what the link can.")


Course = Annotated[list[float | None], Field(max_length=64)]


class ResourceCourse(Shape):
    gpu: Course
    gpu_memory: Course
    gpu_cores: Course
    pcie: Course


class ResourceLaunch(Shape):
    attempt: int
    epoch: int
    type: str
    gpus: int
    share_percent: SharePercent
    emulated: Emulated
    source: Literal["nvml", "processes"] = Field(description="The driver, or the processes on emulated devices.")
    interval_s: float = Field(description="Of what is kept; it doubles with the length of the launch.")
    from_at: datetime
    to_at: datetime


class ResourceProfile(Shape):
    """Use of one kind of device by the job's application, with its batch size and share."""

    type: str
    gpus: int
    share_percent: SharePercent
    emulated: Emulated
    launches: int = Field(description="That were watched.")
    seconds: float = Field(description="For which they were.")
    mean: ResourceParts
    peak: ResourceParts
    interval_s: float = Field(description="Of `history`.")
    history: ResourceCourse = Field(description="Of the newest launch, in at most 64 equal intervals.")
    updated_at: datetime


ResourcePoints = list[tuple[float, float | None]]


class ResourceSeries(Shape):
    gpu: ResourcePoints
    gpu_memory: ResourcePoints
    gpu_cores: ResourcePoints
    pcie: ResourcePoints


class Resources(Shape):
    series: ResourceSeries = Field(
        description=f"[[{SECONDS}, part of one device or null], ...], the mean over the job's devices."
    )
    launches: list[ResourceLaunch] = Field(description="The newest 50, oldest first.")
    profiles: list[ResourceProfile] = Field(description="Newest first, at most 50.")
    emulated: Emulated


class StateSpan(Shape):
    state: RunState
    coarse: JobState
    from_at: datetime
    to_at: datetime | None


class AllocationSpan(Shape):
    epoch: int
    type: str
    count: int
    gpus: list[GpuRef]
    from_at: datetime
    to_at: datetime | None


class Resize(Shape):
    at: datetime
    before: int = Field(description="GPUs.")
    after: int


class JobTimeline(Shape):
    states: list[StateSpan]
    allocations: list[AllocationSpan]
    resizes: list[Resize]


class TypeCost(Shape):
    type: str
    gpu_hours: float
    amount: Money


class Price(Shape):
    """Present prices, before the discount."""

    per_gpu_hour: Money
    per_cpu_hour: Money
    per_gib_hour: Money = Field(description="Of memory.")
    discount_percent: Money = Field(description="What the project need not pay of each.")


class ResourceCost(Shape):
    gpu: Money
    cpu: Money
    memory: Money


class Cost(Shape):
    currency: str
    so_far: Money
    estimated: Money | None
    estimated_low: Money | None
    estimated_high: Money | None
    basis: str = Field(description="What the estimate rests on, in words.")
    price: Price | None = Field(description="What the estimate counts with; null without an allocation.")
    gpu_hours: float = Field(description="Allocated.")
    measured_gpu_hours: float = Field(description="Of those, over which it is known how busy the GPUs were.")
    used_gpu_hours: float | None = Field(description="Occupancy times utilisation, of those measured; null: none were.")
    utilisation: float | None = Field(description="Of its GPUs by the last report, 0 to 1; null: not known.")
    price_per_gpu_hour: Money | None = Field(description="After discount.")
    price_per_hour: Money | None = Field(description="Of all that is allocated to it, CPUs and memory included.")
    by_type: list[TypeCost]
    by_resource: ResourceCost
    lost_to_restarts: Money = Field(description="Cost of its GPUs while it was saved, stopped and launched again.")
    emulated: Emulated


HoldKind = Literal["launching", "protected", "running", "moving"]
