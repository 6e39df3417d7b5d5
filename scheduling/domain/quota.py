"""Projects, QoS levels, limits and guarantees as a round sees them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Entity:
    """A node of the project tree: its share of its parent's, and how it divides its own among jobs. Without a priority
    it has its parent's."""

    parent: str | None = None
    weight: float = 1.0
    inner: str = "fairness"  # fairness | fifo
    priority: int | None = None


@dataclass(frozen=True, slots=True)
class Qos:
    """A QoS: its priority among the others, and the levels whose jobs it may preempt."""

    priority: int = 0
    preempts: tuple[str, ...] = ()
    #: Its own jobs end for good when they are preempted, instead of queueing again.
    cancelled_when_put_out: bool = False


@dataclass(frozen=True, slots=True)
class Limit:
    """A bound on what the jobs that name it may hold together, at any level.

    gpus: GPUs held at once, only of `type` if given; `text`, if given, is the sentence for people, as "QOS gold allows
    8 GPUs at a time". running_jobs: jobs that hold GPUs. queued_jobs: jobs that a round considers, in queue order.
    spent: a period's budget is used up: none of its jobs starts, and together they do not grow; `text` is the sentence
    for people.
    """

    kind: Literal["gpus", "running_jobs", "queued_jobs", "spent"]
    most: int = 0
    type: str | None = None
    level: str = ""  # its level, as "project Speech"
    text: str = ""
    beside: int = 0  # used by other jobs than these, and subtracted from `most`
    word: str = ""  # Slurm's reason, if it is Slurm's limit
    parks: bool = False  # spent: restartable jobs are suspended, too
    until: float | None = None  # spent: when the period ends


@dataclass(frozen=True, slots=True)
class Guarantee:
    """GPUs that the jobs of a project and of its subprojects get back from borrowers within a time."""

    project: str
    gpus: int
    type: str | None = None  # only of this type
    reclaim_within_s: float = 300.0
    level: str = ""  # its level, as "project Speech"
