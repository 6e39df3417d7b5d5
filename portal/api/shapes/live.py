"""States of the live streams. Members with null are missing: in a merge patch null means removal."""

from __future__ import annotations

from datetime import datetime
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, Field, create_model

from portal.api.shapes.base import Detail, JobState, Money, Shape, SharePercent
from portal.api.shapes.jobs import Event, HoldKind, Job


def without_nulls(model: type[BaseModel]) -> type[Any]:
    """`model` with each nullable member optional instead, all the way down."""
    fields: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        annotation, optional = field.annotation, False
        if get_origin(annotation) in (Union, UnionType) and NoneType in get_args(annotation):
            annotation, optional = next(a for a in get_args(annotation) if a is not NoneType), True
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            annotation = without_nulls(annotation)
        if optional:
            fields[name] = (annotation, Field(default=None, json_schema_extra=_drop_default))
        else:
            fields[name] = (annotation, field)
    return create_model(f"Live{model.__name__}", __base__=Shape, **fields)


def _drop_default(schema: dict[str, Any]) -> None:
    schema.pop("default", None)


def _missing(description: str | None = None) -> Any:
    return Field(default=None, description=description, json_schema_extra=_drop_default)


LiveJob = without_nulls(Job)
LiveEvent = without_nulls(Event)


class LivePolicy(Shape):
    name: str
    parameters: Detail
    v_bound: float = _missing()


class LiveClusterHead(Shape):
    name: str
    speedup: float
    emulated: bool
    currency: str
    round: int
    policy: LivePolicy
    last_event_at: datetime = _missing()
    problem: str = _missing()
    engine: str = Field(examples=["Slurm"])
    engine_away_since_at: datetime = _missing("Since when the engine has not answered; nothing is planned meanwhile.")
    rejected: str = _missing()


class Tiles(Shape):
    gpus_total: int = Field(description="Without those that jobs of the engine have which are not the portal's.")
    gpus_busy: int
    gpus_others: int = Field(description="That those have, or leave too little beside.")
    utilisation: float
    running: int
    queued: int
    oldest_wait_since_at: datetime = _missing()
    variance: float = _missing()
    v_bound: float = _missing()
    mean_relative_throughput: float = _missing()
    relative_throughputs: list[float]
    spend_per_hour: Money
    spend_month: Money
    budget_month: Money = _missing("What the projects at the top may spend in a month, if each has such a limit.")


class CellPart(Shape):
    job: int
    kind: HoldKind
    share_percent: SharePercent


class Cell(Shape):
    state: Literal["free", "held", "assigned", "draining", "others"]
    job: int = _missing()
    kind: HoldKind = _missing()
    next: int = _missing()
    parts: list[CellPart] = _missing("Where several may have it: who has how much, the largest part first.")
    free_percent: int = _missing("What none of these has.")
    utilisation: float = _missing()


class LiveNode(Shape):
    type: str
    emulated: bool
    schedulable: bool
    drained: bool
    lost: bool
    memory_mib: int = Field(description="Of each accelerator.")
    cpus: int
    host_memory_mib: int
    accelerators: dict[str, Cell]
    gpus: int
    allocated: int
    others: int = Field(description="GPUs that jobs of the engine have which are not the portal's.")
    others_until_at: datetime = _missing("When the first of these are to end.")
    price_per_hour: Money
    first_waiting: int = _missing("The first in the queue that waits for GPUs and could have some of this node.")
    withheld: Literal["checking", "failed", "unclear"] = _missing(
        "Its check is awaited, or failed; or its engine cannot say whether it is up."
    )
    free_reason: str = _missing()


class AnyJob(Shape):
    number: int
    project: str
    state: JobState
    gpus: int
    share_percent: int = _missing("Of its GPU, where it has a part of one.")


class ClusterState(Shape):
    cluster: LiveClusterHead
    tiles: Tiles
    nodes: dict[str, LiveNode]
    jobs: dict[str, AnyJob]
    queue: list[int]
    events: dict[str, LiveEvent]  # type: ignore[valid-type]


class LiveProject(Shape):
    key: str
    name: str
    gpu_limit: int = _missing()
    gpus_allocated: int


class ProjectState(Shape):
    project: LiveProject
    jobs: dict[str, LiveJob]  # type: ignore[valid-type]
    events: dict[str, LiveEvent]  # type: ignore[valid-type]


class Live(Shape):
    stream: str
    seq: int
    state: ClusterState | ProjectState
