"""Future arrivals: recorded ones, resampled in short blocks (a moving block bootstrap; Künsch, 1989)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from random import Random

from scheduling.domain import Job
from scheduling.lifecycle import State

#: Length of a block of successive arrivals, so that bursts of one user stay bursts.
_BLOCK = 8


@dataclass(frozen=True, slots=True)
class Arrival:
    """A job as it was when it arrived, and the seconds since the previous arrival."""

    gap_s: float
    job: Job


def recorded(jobs: Sequence[Job]) -> tuple[Arrival, ...]:
    """Arrivals of past jobs, in any order; how they ended is ignored."""
    ordered = sorted(jobs, key=lambda job: (job.submitted_at, job.number))
    return tuple(
        Arrival(later.submitted_at - earlier.submitted_at, _anew(later)) for earlier, later in pairwise(ordered)
    )


def _anew(job: Job) -> Job:
    return replace(
        job,
        state=State.WAITING_FOR_INITIAL_RESOURCE,
        remaining_steps=job.done_steps + job.remaining_steps,
        done_steps=0.0,
        gpu_ids=(),
        gang=None,
        has_trained=False,
        protected_until=None,
        not_before=None,
        held=False,
        held_since=None,
        eligible_at=None,
        waits_for="",
    )


def drawn(past: Sequence[Arrival], now: float, first_number: int, rng: Random) -> Iterator[Job]:
    """Arrivals after `now`, as many as were recorded: ten jobs in a minute do not predict a thousand per hour."""
    return islice(_without_end(past, now, first_number, rng), len(past))


def _without_end(past: Sequence[Arrival], now: float, first_number: int, rng: Random) -> Iterator[Job]:
    at, number = now, first_number
    while past:
        start = rng.randrange(len(past))
        for place in range(start, start + _BLOCK):
            arrival = past[place % len(past)]
            at, number = at + max(0.001, arrival.gap_s), number + 1
            yield replace(arrival.job, id=f"arrival-{number}", number=number, submitted_at=at)
