"""Projects, levels of service, limits and guarantees as a round sees them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Entity:
    """A node of the project tree: its share of its parent's, and how it divides its own among jobs; its priority
    against the other nodes' is that of its parent where it has none of its own."""

    parent: str | None = None
    weight: float = 1.0
    inner: str = "fairness"  # fairness | fifo
    priority: int | None = None


@dataclass(frozen=True, slots=True)
class Qos:
    """A level of service: its priority among the others, and jobs of which levels it may put out."""

    priority: int = 0
    preempts: tuple[str, ...] = ()
    #: Its own jobs end for good when they are put out, instead of queueing again.
    cancelled_when_put_out: bool = False


@dataclass(frozen=True, slots=True)
class Limit:
    """A bound on what the jobs that name it may have together, on whatever level it sits.

    gpus: GPUs held at once, of `type` only where it is given; `text`, where it is
    given, says so in whole words, as "QOS gold allows 8 GPUs at a time". running_jobs: jobs that hold GPUs.
    queued_jobs: jobs that a round looks at, in queue order. spent: a period's budget is used up, so
    none of its jobs starts and together they do not grow; `text` says so.
    """

    kind: Literal["gpus", "running_jobs", "queued_jobs", "spent"]
    most: int = 0
    type: str | None = None
    level: str = ""  # where it sits, as "project Speech"
    text: str = ""
    beside: int = 0  # held by others than these jobs, and taken off `most`
    word: str = ""  # Slurm's own, where it is one of Slurm's
    parks: bool = False  # spent: whoever can write a checkpoint leaves its GPUs, too
    until: float | None = None  # spent: when the period ends


@dataclass(frozen=True, slots=True)
class Guarantee:
    """GPUs that the jobs of a project and of all below it get, where others have borrowed them, within a time."""

    project: str
    gpus: int
    type: str | None = None  # of this type only
    reclaim_within_s: float = 300.0
    level: str = ""  # where it sits, as "project Speech"
