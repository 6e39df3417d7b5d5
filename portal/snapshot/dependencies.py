"""Dependencies of jobs: they queue after other jobs ended, or after all earlier ones of their name (Slurm's
--dependency)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from portal.jobs.access import in_states
from portal.jobs.models import Dependency, Job
from scheduling.lifecycle import LIVE, TERMINAL, WAITING, State

Kind = Dependency.Kind

#: For each kind, the ends that satisfy it.
_MEETS = {
    Kind.AFTER_OK: frozenset({State.FINISHED}),
    Kind.AFTER_NOT_OK: frozenset({State.FAILED, State.CANCELLED}),
    Kind.AFTER_ANY: TERMINAL,
}
MOST_DEPENDENCIES = 10_000
_ENDS = {State.FINISHED: "succeeded", State.FAILED: "failed", State.CANCELLED: "was cancelled"}


@dataclass(frozen=True)
class Waits:
    """Dependencies of jobs: a sentence for those that cannot queue yet, and since when the others can."""

    text: dict[Any, str] = field(default_factory=dict)
    since: dict[Any, datetime] = field(default_factory=dict)
    #: Jobs whose dependency can never be satisfied, and why.
    never: dict[Any, str] = field(default_factory=dict)

    def sentence(self, job: UUID) -> str:
        """Empty for a job that may queue."""
        return self.never.get(job) or self.text.get(job, "")

    def eligible_at(self, job: UUID, own: datetime | None) -> float | None:
        """The later of its own time and the end of its dependencies, POSIX seconds."""
        times = [at.timestamp() for at in (own, self.since.get(job)) if at is not None]
        return max(times, default=None)


def waits_of(cluster_id: int) -> Waits:
    """For the waiting jobs with dependencies: two queries, whose size does not depend on jobs without any."""
    mine = Job.objects.filter(in_states(WAITING), cluster_id=cluster_id)
    rows = Dependency.objects.filter(job__in=mine).select_related("on__run", "job").order_by("job__number", "pk")
    return _waits(list(rows))


def would_wait(jobs: Iterable[Job], found: Sequence[tuple[str, Job | None]]) -> Waits:
    """For jobs that are not stored."""
    return _waits([Dependency(job=job, kind=kind, on=other) for job in jobs for kind, other in found])


def _waits(rows: Sequence[Dependency]) -> Waits:
    waits = Waits()
    if not rows:
        return waits
    singletons = _earlier([row.job for row in rows if row.kind == Kind.SINGLETON])
    for row in rows:
        _look(row, singletons.get(row.job_id), waits)
    return waits


def _look(row: Dependency, earlier: int | None, waits: Waits) -> None:
    if row.kind == Kind.SINGLETON:
        if earlier is not None:
            waits.text[row.job_id] = (
                f"It runs alone among jobs of its name: #{earlier} came before it and has not ended."
            )
        return
    if row.on is None or row.on.run is None:
        waits.never[row.job_id] = f"The job that it was to start after ({row.kind}) is gone."
        return
    state = State(row.on.run.state)
    if state in LIVE:
        words = {Kind.AFTER_OK: "succeeds", Kind.AFTER_NOT_OK: "fails"}.get(Kind(row.kind), "ends")
        waits.text.setdefault(row.job_id, f"It starts after #{row.on.number} {words} ({row.kind}).")
    elif state not in _MEETS[Kind(row.kind)]:
        text = f"#{row.on.number} {_ENDS[state]}, and this job was to start only {_only(row.kind)} ({row.kind})."
        waits.never[row.job_id] = text
    elif row.on.run.ended_at is not None:
        known = waits.since.get(row.job_id)
        waits.since[row.job_id] = max(known, row.on.run.ended_at) if known else row.on.run.ended_at


def _only(kind: str) -> str:
    return "if it succeeded" if kind == Kind.AFTER_OK else "if it did not succeed"


def _earlier(jobs: Iterable[Job]) -> dict[Any, int]:
    """For jobs that run alone among those of their name and owner: the first earlier one that has not ended."""
    jobs = list(jobs)
    live = Job.objects.filter(in_states(LIVE), name__in={job.name for job in jobs}).order_by("number")
    known: dict[tuple[str, int | None], int] = {}
    for name, owner, number in live.values_list("name", "owner_id", "number"):
        known.setdefault((name, owner), number)
    first = {job.pk: known.get((job.name, job.owner_id), job.number) for job in jobs}
    return {job.pk: first[job.pk] for job in jobs if first[job.pk] < job.number}
