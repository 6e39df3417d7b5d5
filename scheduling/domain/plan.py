"""The output of a round: allocations, moves and their reasons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from scheduling.domain.job import Gang


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a job got what it got: a reason code, and a sentence for people."""

    token: str
    text: str
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Allocation:
    """A policy's answer. Exactly one of the three kinds is set; a missing job gets nothing.

    counts: whole GPUs per job (elastic policies). shares: fraction of time per type, of one job or of two that share
    their GPUs (round policies). placements: accelerator ids per job (packing policies).
    """

    counts: Mapping[str, Gang] | None = None
    shares: Mapping[tuple[str, ...], Mapping[str, float]] | None = None
    placements: Mapping[str, tuple[int, ...]] | None = None
    reasons: Mapping[str, Reason] = field(default_factory=dict)
    memory: Mapping[str, Any] = field(default_factory=dict)
    figures: Mapping[str, float] = field(default_factory=dict)  # variance, throughput_sum, gap, ...
    next_wake_at: float | None = None


@dataclass(frozen=True, slots=True)
class Move:
    """One change: the job's GPUs become `gpu_ids` (empty: it is queued again)."""

    job_id: str
    kind: str  # start | rescale | preempt
    gpu_ids: tuple[int, ...]
    gang: Gang | None
    before: Gang | None
    reason: Reason
    taken_by: tuple[str, ...] = ()  # jobs that get the GPUs it leaves


@dataclass(frozen=True, slots=True)
class Plan:
    """The decisions of a round. Applied as a whole against the snapshot it came from."""

    moves: tuple[Move, ...] = ()
    reasons: Mapping[str, Reason] = field(default_factory=dict)  # for each live job, moved or not
    memory: Mapping[str, Any] = field(default_factory=dict)
    figures: Mapping[str, float] = field(default_factory=dict)
    next_wake_at: float | None = None
    rejected: str | None = None  # why the policy's plan was not applied (min_gain), as a sentence
