"""Builds the allocation of one round under time sharing."""

from __future__ import annotations

from collections.abc import Mapping

from scheduling.capacity.cluster_view import RoundView
from scheduling.capacity.quota_headroom import QuotaHeadroom
from scheduling.domain import Gang, Job, Reason, Snapshot
from scheduling.domain.lazy_reasons import LazyReasons
from scheduling.domain.reason_codes import ReasonCode
from scheduling.domain.wording import words
from scheduling.engine.time_sharing.shares_ledger import TimeShareState


class AllocationBuilder:
    """Assigns gangs to jobs while free GPUs and quota headroom last."""

    def __init__(self, field: RoundView) -> None:
        self.free, self.headroom = dict(field.free), QuotaHeadroom(field)
        self.counts: dict[str, Gang] = {}
        self.moved: list[Job] = []  # jobs whose gang differs from the one they hold

    def fits(self, job: Job, gang: Gang) -> bool:
        return gang.count <= self.free.get(gang.type, 0) and self.headroom.over(job, gang) is None

    def give(self, job: Job, gang: Gang) -> None:
        self.counts[job.id] = gang
        if gang is not job.gang and gang != job.gang:
            self.moved.append(job)
        self.free[gang.type] = self.free.get(gang.type, 0) - gang.count
        if job.limits:
            self.headroom.book(job, gang)


def reasons_of(
    ledger: TimeShareState, snapshot: Snapshot, field: RoundView, builder: AllocationBuilder
) -> Mapping[str, Reason]:
    """Reasons of all jobs of the round; each is formatted when it is read."""
    jobs = {job.id: job for job in field.candidates}
    left_s = max(0.0, ledger.round_end - snapshot.now)

    def tell(key: str) -> Reason:
        job = jobs.get(key)
        if job is None:
            return field.reasons.get(key) or ledger.reasons[key]
        share = ledger.books.promised(key)
        part = f"{min(1.0, share):.0%} of GPU time"
        if ledger.problem:
            part += f" (the last valid answer, since {ledger.problem})"
        if key in builder.counts:
            text = f"It gets {part}; in this round it has {words(builder.counts[key])}."
            return Reason(ReasonCode.IN_ROUND, text, {"share": share})
        over = builder.headroom.reason(job, [Gang(kind, job.min_gpus) for kind in field.spans(job)])
        if over is not None:
            return over
        text = f"It gets {part}. Other jobs run in this round; the next starts in {left_s:.0f} s."
        return Reason(ReasonCode.NEXT_ROUND, text, {"share": share})

    return LazyReasons((*ledger.reasons, *field.reasons, *jobs), tell)
