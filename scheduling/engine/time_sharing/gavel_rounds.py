"""Rounds by the reference implementation's rules (`compatible: true`), to compare with its published results.

Spec: heterogeneity-policies, "The reference implementation's own rules". No job moves or starts within a round; types
are filled one after the other; moving is assumed to be free.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from scheduling.capacity.cluster_view import RoundView, queue_key
from scheduling.domain import Allocation, Gang, Job, Snapshot
from scheduling.engine.time_sharing.allocation_builder import AllocationBuilder, reasons_of
from scheduling.engine.time_sharing.job_columns import columns_of
from scheduling.engine.time_sharing.shares_ledger import EDGE_S, TimeShareState, compute, signature_of
from scheduling.policies.base import Policy
from scheduling.policies.time_shares.base import FractionParameters
from scheduling.policies.time_shares.gavel.objective import drawn_order, in_fixed_order
from scheduling.policies.time_shares.programs.last_answer import MEMORY

ROUND = "reference_round"
#: Replaces an infinite priority of a job that has had no time on a type yet.
_FIRST = 1e9


@dataclass
class Round:
    """What the present round assigned, and what the reference keeps from one computation to the next."""

    gangs: dict[str, Gang] = field(default_factory=dict)
    ends: dict[str, float] = field(default_factory=dict)  # when each gang ends, in the order of crediting
    stops: dict[str, float] = field(default_factory=dict)  # when a gang releases its GPUs before the round's end
    left: dict[str, float] = field(default_factory=dict)  # job -> whole steps left
    number: int = 0  # rounds so far
    had: dict[str, dict[str, float]] = field(default_factory=dict)  # job -> type -> seconds since the last computation
    worked: dict[str, float] = field(default_factory=dict)  # type -> the same, for all jobs that were present then
    deficits: dict[str, dict[str, float]] = field(default_factory=dict)  # job -> type -> seconds due and not received

    @classmethod
    def load(cls, memory: Mapping[str, Any]) -> Round:
        kept = memory.get(ROUND)
        if not kept:
            return cls()
        gangs = {key: Gang(kind, count) for key, (kind, count) in kept["gangs"].items()}
        ends, stops, left, worked = (dict(kept[name]) for name in ("ends", "stops", "left", "worked"))
        had, deficits = ({key: dict(times) for key, times in kept[name].items()} for name in ("had", "deficits"))
        return cls(gangs, ends, stops, left, kept["number"], had, worked, deficits)

    def dump(self) -> dict[str, Any]:
        gangs = {key: [gang.type, gang.count] for key, gang in self.gangs.items()}
        names = "ends", "stops", "left", "number", "had", "worked", "deficits"
        return {"gangs": gangs, **{name: getattr(self, name) for name in names}}

    def credit(self, began: float, credit_s: float) -> None:
        """Credit the time that jobs had in the past round; last bits count, since they break ties."""
        for key, end in self.ends.items():
            kind, times = self.gangs[key].type, self.had.setdefault(key, {})
            times[kind] = times.get(kind, credit_s) + (end - began)
            self.worked[kind] = self.worked.get(kind, 0.0) + (end - began)

    def begin(self, field: RoundView, at: float, round_s: float) -> float:
        """Start a round, and return when it ends. A job makes whole steps only, and the round ends once all jobs have
        made theirs. Partial steps must not end a job a round too early, so the round then stops before that."""
        jobs = [job for job in sorted(field.candidates, key=queue_key) if job.id in self.gangs]
        speeds = {job.id: field.steps_per_s(job, self.gangs[job.id]) for job in jobs}
        left = {job.id: max(self.left.get(job.id, 1.0), job.remaining_steps) for job in field.candidates}
        made = {key: min(max(1, int(speed * round_s)), left[key]) for key, speed in speeds.items()}
        ends = {key: at + steps / speeds[key] for key, steps in made.items()}
        self.ends = dict(sorted(ends.items(), key=lambda item: -item[1]))
        self.left = {key: steps - made.get(key, 0.0) for key, steps in left.items()}
        until, self.stops = max(ends.values(), default=at + round_s), {}
        for job in jobs:
            if self.left[job.id] > 0 and job.remaining_steps <= speeds[job.id] * (until - at):
                self.stops[job.id] = at + (job.remaining_steps - self.left[job.id]) / speeds[job.id]
        return until

    def hold(self, key: str, now: float) -> bool:
        """Whether a gang of this round holds its GPUs now."""
        return now < self.stops.get(key, math.inf) - EDGE_S

    def wakes_at(self, now: float, end: float) -> float:
        return min((at for at in self.stops.values() if at > now + EDGE_S), default=end)


def share_time_as_reference(snapshot: Snapshot, field: RoundView, policy: Policy) -> Allocation:
    """Whole gangs until the end of the round."""
    ledger, now = TimeShareState.load(snapshot.memory), Round.load(snapshot.memory)
    present = {job.id: job for job in snapshot.jobs}
    if snapshot.now >= ledger.round_end - EDGE_S or now.gangs.keys().isdisjoint(present):
        _new_round(ledger, now, snapshot, field, policy)
    builder = AllocationBuilder(field)
    for key, gang in now.gangs.items():
        if key in present and now.hold(key, snapshot.now):
            builder.give(present[key], gang)
    return Allocation(
        counts=builder.counts,
        reasons=reasons_of(ledger, snapshot, field, builder),
        memory={MEMORY: ledger.dump(), ROUND: now.dump()},
        figures=ledger.figures,
        next_wake_at=now.wakes_at(snapshot.now, ledger.round_end) if field.candidates else None,
    )


def _new_round(ledger: TimeShareState, now: Round, snapshot: Snapshot, field: RoundView, policy: Policy) -> None:
    """Time is the sum of round lengths, without the clock's last bits."""
    settings = policy.parameters
    assert isinstance(settings, FractionParameters)
    at = ledger.round_end if abs(snapshot.now - ledger.round_end) <= EDGE_S else snapshot.now
    now.credit(ledger.at, settings.round_seconds / 2.0)
    ledger.at = at
    _recompute(ledger, now, snapshot, field, policy, least_s=settings.recompute_seconds)
    builder = _fill_types(ledger, now, field, policy)
    if not builder.counts:
        _recompute(ledger, now, snapshot, field, policy, least_s=0.0)
        builder = _fill_types(ledger, now, field, policy)
    now.gangs = dict(builder.counts)
    ledger.round_end = now.begin(field, at, settings.round_seconds)


def _recompute(
    ledger: TimeShareState, now: Round, snapshot: Snapshot, field: RoundView, policy: Policy, *, least_s: float
) -> None:
    """Recompute fractions after jobs arrived or ended, at most once in `least_s` seconds."""
    settings = policy.parameters
    assert isinstance(settings, FractionParameters)
    signature = signature_of(snapshot, columns_of(snapshot, field), field, policy)
    credit_s = settings.round_seconds / 2.0
    # The reference takes a computation at time 0 for none.
    if signature == ledger.signature or (0.0 < ledger.at < ledger.computed_at + least_s and ledger.computed_at > 0.0):
        return
    elapsed = 0.0 if math.isinf(ledger.computed_at) else ledger.at - ledger.computed_at
    deficits: dict[str, dict[str, float]] = {}
    for job in snapshot.jobs:
        had = now.had.get(job.id, {})
        before = now.deficits.get(job.id, {})
        deficits[job.id] = {
            kind: before.get(kind, 0.0)
            + (ledger.books.share(job.id, kind) * elapsed - (had.get(kind, credit_s) - credit_s))
            for kind in field.types
        }
    now.deficits, now.had = deficits, {}
    now.worked = dict.fromkeys(field.types, credit_s * len(snapshot.jobs))
    compute(ledger, snapshot, policy, signature)
    ledger.computed_at = ledger.at
    ledger.books = ledger.books.forgetting()  # the reference uses deficits instead


def _fill_types(ledger: TimeShareState, now: Round, field: RoundView, policy: Policy) -> AllocationBuilder:
    """Fill one type after the other, each by descending (priority, deficit, fraction)."""
    settings = policy.parameters
    assert isinstance(settings, FractionParameters)
    kinds = in_fixed_order(field.types)
    if settings.variant == "agnostic":
        kinds = [kinds[place] for place in drawn_order(len(kinds), now.number)]
    now.number += 1
    builder, jobs = AllocationBuilder(field), sorted(field.candidates, key=queue_key)
    waits = policy.capabilities.strict_shares
    for kind in kinds:
        ranks = {job.id: _rank(ledger, now, job, kind, settings.round_seconds / 2.0) for job in jobs}
        for job in sorted(jobs, key=lambda job: ranks[job.id], reverse=True):
            gang = Gang(kind, job.min_gpus)
            if waits and not ledger.books.share(job.id, kind):
                continue
            if job.id not in builder.counts and field.steps_per_s(job, gang) > 0 and builder.fits(job, gang):
                builder.give(job, gang)
    # A job that arrived since the last computation is placed but not started: its GPUs stay idle.
    for job in jobs:
        if job.id not in now.deficits:
            builder.counts.pop(job.id, None)
    return builder


def _rank(ledger: TimeShareState, now: Round, job: Job, kind: str, credit_s: float) -> tuple[float, float, float]:
    share, worked = ledger.books.share(job.id, kind), now.worked.get(kind, 0.0)
    part = now.had.get(job.id, {}).get(kind, credit_s) / worked if worked > 0 else 0.0
    priority = share / part if part > 0 else share * _FIRST
    return priority, now.deficits.get(job.id, {}).get(kind, 0.0), share
