"""What a policy can do and what it reads, as types: rounds, simulator, forecasts and pages ask nothing else of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, Flag, auto
from typing import Any, Protocol, runtime_checkable

from scheduling.capacity.cluster_view import RoundView
from scheduling.domain import Job, Snapshot
from scheduling.priority.scoring import Scores


class Answer(Enum):
    """In what form a policy answers."""

    COUNTS = auto()  # a gang for each job; the engine places it
    PLACEMENTS = auto()  # accelerators for each job
    TIME_SHARES = auto()  # fractions of time, which rounds realise (scheduling.engine.time_sharing)


class Needs(Flag):
    """What a policy reads beyond what every snapshot has."""

    NONE = 0
    FAIR_SHARE = auto()  # members, usage and since when jobs hold GPUs; its parameters are FairShareParameters
    PAIRS = auto()  # throughputs of jobs that share GPUs
    PRICES = auto()
    HISTORIES = auto()  # what jobs used of a GPU when they were recorded (Job.history)


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Required of every policy. Defaults are what holds for most."""

    answer: Answer
    needs: Needs = Needs.NONE
    #: `min_gain` and protection after a launch apply to its plans; its parameters are ElasticParameters.
    elastic: bool = False
    #: With counts of its own, running jobs may be left out.
    preempts: bool = False
    #: It leaves running jobs alone that a guarantee protects; otherwise it is asked again
    #: (scheduling.engine.constraints.victim_protection).
    respects_guarantees: bool = False
    #: It places fractions of GPUs itself (scheduling.domain.gpu_parts).
    places_gpu_parts: bool = False
    #: Of those: it never lets two jobs share a GPU.
    exclusive_gpus: bool = False
    #: Running jobs may be moved to bring a gang onto one node.
    consolidates: bool = False
    #: Jobs that hold GPUs keep them to their end, no job starts before those ahead of it in the queue, and the reason
    #: of a job that waits for one ahead has that job's id under `by`.
    strict_order: bool = False
    #: Jobs that hold GPUs keep them to their end (but for levels of service and guarantees), and where no waiting job
    #: fits what is idle, no job starts; such a policy sizes starts.
    runs_to_completion: bool = False
    #: Its answer depends on time or on steps done, not only on jobs, GPUs and throughputs.
    time_dependent: bool = True
    #: GPUs that its time shares leave idle go to waiting jobs.
    work_conserving: bool = True
    #: Until the present round ends jobs that hold GPUs keep them, and a job that alone fits what is idle starts
    #: whatever the others do (scheduling.engine.time_sharing.rounds).
    holds_within_round: bool = False
    #: A job without a time share waits under the reference's rules too, where others take what is idle.
    strict_shares: bool = False

    @property
    def shares_time(self) -> bool:
        return self.answer is Answer.TIME_SHARES


@runtime_checkable
class OrdersQueue(Protocol):
    """Its order, where that is not the queue's."""

    def in_order(self, snapshot: Snapshot, jobs: Sequence[Job]) -> list[Job]: ...


@runtime_checkable
class SizesStarts(Protocol):
    """GPUs of each type on which it starts a job, where that is not the least."""

    def start_sizes(self, field: RoundView, job: Job) -> dict[str, int]: ...


@runtime_checkable
class ScoresJobs(Protocol):
    """Priorities of jobs, with their parts."""

    def scores_of(self, snapshot: Snapshot, jobs: Sequence[Job]) -> Scores: ...


@runtime_checkable
class HasPresets(Protocol):
    """Parameters by name, for forms."""

    presets: Mapping[str, Mapping[str, Any]]
