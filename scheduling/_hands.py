"""What is given out in a round, and what is said about it."""

from __future__ import annotations

from collections import defaultdict

from scheduling._ledger import Ledger
from scheduling.domain import Gang, Job, Reason, Snapshot
from scheduling.policies._limits import Rooms
from scheduling.policies._view import View, words


class Hands:
    """What is given out in this round, within GPUs and limits."""

    def __init__(self, field: View) -> None:
        self.free, self.rooms = dict(field.free), Rooms(field)
        self.counts: dict[str, Gang] = {}

    def fits(self, job: Job, gang: Gang) -> bool:
        return gang.count <= self.free.get(gang.type, 0) and self.rooms.over(job, gang) is None

    def give(self, job: Job, gang: Gang) -> None:
        self.counts[job.id] = gang
        self.free[gang.type] = self.free.get(gang.type, 0) - gang.count
        self.rooms.book(job, gang)


def reasons_of(ledger: Ledger, snapshot: Snapshot, field: View, hands: Hands) -> dict[str, Reason]:
    promised: dict[str, float] = defaultdict(float)
    for key, by_type in ledger.shares.items():
        for member in key:
            promised[member] += sum(by_type.values())
    reasons = dict(field.reasons)
    left_s = max(0.0, ledger.round_end - snapshot.now)
    for job in field.taking_part:
        part = f"{min(1.0, promised[job.id]):.0%} of the time"
        detail = {"share": promised[job.id]}
        if ledger.problem:
            part += f" (the last valid answer, since {ledger.problem})"
        over = hands.rooms.reason(job, [Gang(kind, job.min_gpus) for kind in field.spans(job)])
        if job.id in hands.counts:
            text = f"The policy gives it {part}; in this round it has {words(hands.counts[job.id])}."
            reasons[job.id] = Reason("in_round", text, detail)
        elif over is not None:
            reasons[job.id] = over
        else:
            text = f"The policy gives it {part}; others are ahead in this round, which ends in {left_s:.0f} s."
            reasons[job.id] = Reason("next_round", text, detail)
    return reasons
