"""What is given out in a round, and what is said about it."""

from __future__ import annotations

from collections.abc import Mapping

from scheduling.capacity.cluster_view import View
from scheduling.capacity.quota_headroom import Rooms
from scheduling.domain import Gang, Job, Reason, Snapshot
from scheduling.domain.lazy_reasons import Told
from scheduling.domain.wording import words
from scheduling.engine.time_sharing.shares_ledger import Ledger


class Hands:
    """What is given out in this round, within GPUs and limits."""

    def __init__(self, field: View) -> None:
        self.free, self.rooms = dict(field.free), Rooms(field)
        self.counts: dict[str, Gang] = {}
        self.moved: list[Job] = []  # who is given another gang than it has

    def fits(self, job: Job, gang: Gang) -> bool:
        return gang.count <= self.free.get(gang.type, 0) and self.rooms.over(job, gang) is None

    def give(self, job: Job, gang: Gang) -> None:
        self.counts[job.id] = gang
        if gang is not job.gang and gang != job.gang:
            self.moved.append(job)
        self.free[gang.type] = self.free.get(gang.type, 0) - gang.count
        if job.limits:
            self.rooms.book(job, gang)


def reasons_of(ledger: Ledger, snapshot: Snapshot, field: View, hands: Hands) -> Mapping[str, Reason]:
    """Of all jobs that the round saw, in words once somebody reads them."""
    jobs = {job.id: job for job in field.taking_part}
    left_s = max(0.0, ledger.round_end - snapshot.now)

    def tell(key: str) -> Reason:
        job = jobs.get(key)
        if job is None:
            return field.reasons.get(key) or ledger.reasons[key]
        share = ledger.books.promised(key)
        part = f"{min(1.0, share):.0%} of the time"
        if ledger.problem:
            part += f" (the last valid answer, since {ledger.problem})"
        if key in hands.counts:
            text = f"The policy gives it {part}; in this round it has {words(hands.counts[key])}."
            return Reason("in_round", text, {"share": share})
        over = hands.rooms.reason(job, [Gang(kind, job.min_gpus) for kind in field.spans(job)])
        if over is not None:
            return over
        text = f"The policy gives it {part}; others are ahead in this round, which ends in {left_s:.0f} s."
        return Reason("next_round", text, {"share": share})

    return Told((*ledger.reasons, *field.reasons, *jobs), tell)
