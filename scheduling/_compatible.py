"""Rounds by the reference implementation's own rules (`compatible: true`), to compare with its published results.

Spec: heterogeneity-policies, "The reference implementation's own rules". Nobody moves or starts within a round; types
are filled one after the other; moving is taken to be free.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from scheduling._hands import Hands, reasons_of
from scheduling._ledger import EDGE_S, Ledger, account, compute, signature_of
from scheduling.domain import Allocation, Gang, Job, Snapshot
from scheduling.policies._fraction_policy import FractionParameters
from scheduling.policies._memory import MEMORY
from scheduling.policies._reference import in_fixed_order
from scheduling.policies._view import View, queue_key
from scheduling.policies.base import Policy

ROUND = "reference_round"
#: What stands for an infinite priority where nobody has had time on a type yet.
_FIRST = 1e9


@dataclass
class Round:
    """What the present round gave out, and what the reference keeps from one computation to the next."""

    gangs: dict[str, Gang] = field(default_factory=dict)
    credited: int = 0  # jobs that were there at the last computation, each with half a round of credit
    deficits: dict[str, dict[str, float]] = field(default_factory=dict)  # job -> type -> seconds due and not had

    @classmethod
    def load(cls, memory: Mapping[str, Any]) -> Round:
        kept = memory.get(ROUND)
        if not kept:
            return cls()
        gangs = {key: Gang(kind, count) for key, (kind, count) in kept["gangs"].items()}
        return cls(gangs, kept["credited"], {key: dict(by_type) for key, by_type in kept["deficits"].items()})

    def dump(self) -> dict[str, Any]:
        gangs = {key: [gang.type, gang.count] for key, gang in self.gangs.items()}
        return {"gangs": gangs, "credited": self.credited, "deficits": self.deficits}


def share_time_as_reference(snapshot: Snapshot, field: View, policy: Policy) -> Allocation:
    """Whole gangs until the end of the round."""
    settings = policy.parameters
    assert isinstance(settings, FractionParameters)
    ledger, now = Ledger.load(snapshot.memory), Round.load(snapshot.memory)
    _credit_ended(ledger, now, snapshot)
    account(ledger, snapshot)
    present = {job.id: job for job in snapshot.jobs}
    if snapshot.now >= ledger.round_end - EDGE_S or now.gangs.keys().isdisjoint(present):
        _recompute(ledger, now, snapshot, field, policy, least_s=settings.recompute_seconds)
        hands = _fill_types(ledger, now, snapshot, field, policy)
        if not hands.counts:
            _recompute(ledger, now, snapshot, field, policy, least_s=0.0)
            hands = _fill_types(ledger, now, snapshot, field, policy)
        now.gangs = dict(hands.counts)
        ledger.round_end = snapshot.now + settings.round_seconds
    else:
        hands = Hands(field)
        for key, gang in now.gangs.items():
            if key in present:
                hands.give(present[key], gang)
    return Allocation(
        counts=hands.counts,
        reasons={**ledger.reasons, **reasons_of(ledger, snapshot, field, hands)},
        memory={MEMORY: ledger.dump(), ROUND: now.dump()},
        figures=ledger.figures,
        next_wake_at=ledger.round_end if field.taking_part else None,
    )


def _credit_ended(ledger: Ledger, now: Round, snapshot: Snapshot) -> None:
    """A job that ended within the round had its GPUs until now."""
    present = {job.id for job in snapshot.jobs}
    for key, gang in now.gangs.items():
        if key not in present:
            ledger.had[key][gang.type] = ledger.had[key].get(gang.type, 0.0) + snapshot.now - ledger.at
    now.gangs = {key: gang for key, gang in now.gangs.items() if key in present}


def _recompute(ledger: Ledger, now: Round, snapshot: Snapshot, field: View, policy: Policy, *, least_s: float) -> None:
    """Fractions anew where jobs came or ended, but not more often than every `least_s` seconds."""
    signature = signature_of(snapshot, field, policy)
    # It takes a computation at time 0 for none.
    if signature == ledger.signature or (
        0.0 < snapshot.now < ledger.computed_at + least_s and ledger.computed_at > 0.0
    ):
        return
    elapsed = 0.0 if math.isinf(ledger.computed_at) else snapshot.now - ledger.computed_at
    deficits: dict[str, dict[str, float]] = {}
    for job in snapshot.jobs:
        due, had = ledger.shares.get((job.id,), {}), ledger.had.get(job.id, {})
        before = now.deficits.get(job.id, {})
        deficits[job.id] = {
            kind: before.get(kind, 0.0) + due.get(kind, 0.0) * elapsed - had.get(kind, 0.0) for kind in field.types
        }
    now.deficits, now.credited = deficits, len(snapshot.jobs)
    compute(ledger, snapshot, policy, signature)


def _fill_types(ledger: Ledger, now: Round, snapshot: Snapshot, field: View, policy: Policy) -> Hands:
    """Type after type, each by descending (priority, deficit, fraction)."""
    settings = policy.parameters
    assert isinstance(settings, FractionParameters)
    kinds = in_fixed_order(field.types)
    if settings.variant == "agnostic":
        Random(int(snapshot.now)).shuffle(kinds)  # noqa: S311
    hands, jobs = Hands(field), sorted(field.taking_part, key=queue_key)
    credit = settings.round_seconds / 2.0
    waits = getattr(policy, "strictly_shared", False)
    for kind in kinds:
        worked = credit * now.credited + sum(had.get(kind, 0.0) for had in ledger.had.values())
        ranked = sorted(jobs, key=lambda job: _rank(ledger, now, job, kind, credit, worked), reverse=True)
        for job in ranked:
            gang = Gang(kind, job.min_gpus)
            if waits and not ledger.shares.get((job.id,), {}).get(kind):
                continue
            if job.id not in hands.counts and field.steps_per_s(job, gang) > 0 and hands.fits(job, gang):
                hands.give(job, gang)
    # Who came since the last computation is placed but not started: its GPUs stay idle.
    for job in jobs:
        if job.id not in now.deficits:
            hands.counts.pop(job.id, None)
    return hands


def _rank(ledger: Ledger, now: Round, job: Job, kind: str, credit: float, worked: float) -> tuple[float, float, float]:
    share = ledger.shares.get((job.id,), {}).get(kind, 0.0)
    part = (credit + ledger.had.get(job.id, {}).get(kind, 0.0)) / worked if worked > 0 else 0.0
    priority = share / part if part > 0 else share * _FIRST
    return priority, now.deficits.get(job.id, {}).get(kind, 0.0), share
