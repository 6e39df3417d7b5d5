"""What a policy can do and what it reads, as types. Rounds, simulator, forecasts and pages rely on nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, Flag, auto
from typing import Any, Protocol, runtime_checkable

from scheduling.capacity.cluster_view import RoundView
from scheduling.domain import Job, Snapshot
from scheduling.priority.scoring import Scores


class Answer(Enum):
    """The form of a policy's answer."""

    COUNTS = auto()  # a gang for each job; the engine places it
    PLACEMENTS = auto()  # accelerators for each job
    TIME_SHARES = auto()  # fractions of time, which rounds realise (scheduling.engine.time_sharing)


class Needs(Flag):
    """What a policy reads beyond the minimal snapshot."""

    NONE = 0
    FAIR_SHARE = auto()  # members, usage and since when jobs hold GPUs; its parameters are FairShareParameters
    PAIRS = auto()  # throughputs of jobs that share GPUs
    PRICES = auto()
    HISTORIES = auto()  # recorded GPU use of jobs (Job.history)


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Required of every policy. The defaults fit most policies."""

    answer: Answer
    needs: Needs = Needs.NONE
    #: `min_gain` and protection after a launch apply to its plans; its parameters are ElasticParameters.
    elastic: bool = False
    #: The policy answers with counts and may preempt running jobs.
    preempts: bool = False
    #: The policy spares running jobs within a guarantee; otherwise it is asked again
    #: (scheduling.engine.constraints.victim_protection).
    respects_guarantees: bool = False
    #: The policy places fractional jobs itself (scheduling.domain.gpu_parts).
    places_gpu_parts: bool = False
    #: Such a policy that never lets two jobs share a GPU.
    exclusive_gpus: bool = False
    #: Running jobs may be moved to consolidate gangs.
    consolidates: bool = False
    #: Running jobs keep their GPUs until they end, no job starts before those ahead of it in the queue, and the reason
    #: of a job that waits for one ahead has that job's id under `by`.
    strict_order: bool = False
    #: Running jobs keep their GPUs until they end (except for QoS and guarantees), and no job starts while none fits on
    #: the idle GPUs; such a policy sizes starts.
    runs_to_completion: bool = False
    #: The answer depends on time or on steps done, not only on jobs, GPUs and throughputs.
    time_dependent: bool = True
    #: GPUs that the time shares leave idle go to queued jobs.
    work_conserving: bool = True
    #: Running jobs keep their GPUs until the present round ends, and a job that fits on the idle GPUs by itself starts
    #: whatever the others do (scheduling.engine.time_sharing.rounds).
    holds_within_round: bool = False
    #: A job without a time share waits also under the reference's rules, where others take idle GPUs.
    strict_shares: bool = False

    @property
    def shares_time(self) -> bool:
        return self.answer is Answer.TIME_SHARES


@runtime_checkable
class OrdersQueue(Protocol):
    """Policies with their own queue order."""

    def in_order(self, snapshot: Snapshot, jobs: Sequence[Job]) -> list[Job]: ...


@runtime_checkable
class SizesStarts(Protocol):
    """The GPUs of each type on which the policy starts a job, if not the least gang."""

    def start_sizes(self, field: RoundView, job: Job) -> dict[str, int]: ...


@runtime_checkable
class ScoresJobs(Protocol):
    """Priorities of jobs, with their components."""

    def scores_of(self, snapshot: Snapshot, jobs: Sequence[Job]) -> Scores: ...


@runtime_checkable
class HasPresets(Protocol):
    """Named sets of parameters, for forms."""

    presets: Mapping[str, Mapping[str, Any]]
