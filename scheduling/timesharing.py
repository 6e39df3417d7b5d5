"""Rounds that realise fractions of time (spec: heterogeneity-policies, "Round mechanism").

At each round's end the combinations are walked by descending priority: what a job was promised on a type over what it
had there since the last computation. In between, whoever runs goes on, and idle GPUs go to those that wait. What has
to be remembered is plain values in the plan's memory.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from scheduling._compatible import share_time_as_reference
from scheduling._hands import Hands, reasons_of
from scheduling._ledger import EDGE_S, Key, Ledger, account, compute, signature_of
from scheduling.domain import Allocation, Gang, Job, Snapshot
from scheduling.policies._fraction_policy import FractionParameters
from scheduling.policies._memory import MEMORY
from scheduling.policies._view import View, queue_key, view
from scheduling.policies.base import Policy


def share_time(snapshot: Snapshot, field: View, policy: Policy) -> Allocation:
    """Whole gangs for the moment, by the policy's fractions; raises what the policy raises."""
    settings = policy.parameters
    assert isinstance(settings, FractionParameters)
    if settings.compatible:
        return share_time_as_reference(snapshot, field, policy)
    ledger = Ledger.load(snapshot.memory)
    account(ledger, snapshot)
    new_round = snapshot.now >= ledger.round_end - EDGE_S
    signature = signature_of(snapshot, field, policy)
    # Fractions fit jobs and GPUs as they were; when those change they are computed anew at once, and the round goes on.
    if signature != ledger.signature or (new_round and snapshot.now >= ledger.computed_at + settings.recompute_seconds):
        compute(ledger, snapshot, policy, signature)
    hands = _walk(ledger, snapshot, field, keep=not new_round)
    if getattr(policy, "fills", True):
        _fill(field, hands)
    if new_round:
        ledger.round_end = snapshot.now + settings.round_seconds
    return Allocation(
        counts=hands.counts,
        reasons={**ledger.reasons, **reasons_of(ledger, snapshot, field, hands)},
        memory={MEMORY: ledger.dump()},
        figures={**ledger.figures, "deviation": _deviation(ledger, snapshot)},
        next_wake_at=ledger.round_end if field.taking_part else None,
    )


def with_least_gangs(snapshot: Snapshot) -> Snapshot:
    """Fractions are of a job's least gang: where nothing here trains on that (its batch does not fit on so few), it is
    the least on which something does."""
    field = view(snapshot)
    least = {}
    for job in field.taking_part:
        lows = [span.low for span in field.spans(job).values()]
        if lows and min(lows) > job.min_gpus:
            least[job.id] = min(lows)
    if not least:
        return snapshot
    jobs = (replace(job, min_gpus=least[job.id]) if job.id in least else job for job in snapshot.jobs)
    return replace(snapshot, jobs=tuple(jobs))


def _ranked(ledger: Ledger, snapshot: Snapshot, jobs: Mapping[str, Job]) -> list[tuple[Key, str]]:
    """(combination, type) by descending priority; ties by what is owed over all types and on this one, then by the
    promise, then by the queue."""
    since = max(snapshot.now - ledger.computed_at, 0.0)
    debts = _debts(ledger, since)
    ranked = []
    for key, by_type in ledger.shares.items():
        if not all(job in jobs for job in key):
            continue
        debt = sum(debts[job] for job in key) / len(key)
        for kind, share in by_type.items():
            had = sum(ledger.had.get(job, {}).get(kind, 0.0) for job in key) / len(key)
            priority = math.inf if had <= 0.0 else share * since / had
            owed = share * since - had
            ranked.append((-priority, -debt, -owed, -share, queue_key(jobs[key[0]]), key, kind))
    ranked.sort()
    return [(key, kind) for *_, key, kind in ranked]


def _debts(ledger: Ledger, since: float) -> dict[str, float]:
    """By job: seconds that it was promised on all types since the computation, less those that it had."""
    debts: dict[str, float] = defaultdict(float)
    for key, by_type in ledger.shares.items():
        for job in key:
            debts[job] += sum(by_type.values()) * since
    for job in debts:
        debts[job] -= sum(ledger.had.get(job, {}).values())
    return debts


def _walk(ledger: Ledger, snapshot: Snapshot, field: View, *, keep: bool) -> Hands:
    """Who gets which type now. With `keep` whoever runs goes on, and only what is idle is given away."""
    hands = Hands(field)
    jobs = {job.id: job for job in field.taking_part}
    for job in field.running if keep else ():
        if job.gang is not None:
            hands.give(job, job.gang)
    for (key,), kind in _ranked(ledger, snapshot, jobs):
        gang = Gang(kind, jobs[key].min_gpus)
        if key not in hands.counts and hands.fits(jobs[key], gang):
            hands.give(jobs[key], gang)
    return hands


def _fill(field: View, hands: Hands) -> None:
    """GPUs that the fractions leave idle go to whoever waits, the fastest fit first."""
    for job in sorted((job for job in field.taking_part if job.id not in hands.counts), key=queue_key):
        gangs = [Gang(kind, job.min_gpus) for kind, span in field.spans(job).items() if span.low <= job.min_gpus]
        fits = [gang for gang in gangs if field.steps_per_s(job, gang) > 0 and hands.fits(job, gang)]
        if fits:
            hands.give(job, max(fits, key=lambda gang: (field.steps_per_s(job, gang), gang.type)))


def _deviation(ledger: Ledger, snapshot: Snapshot) -> float:
    """The largest debt, in seconds."""
    return max(_debts(ledger, max(0.0, snapshot.now - ledger.computed_at)).values(), default=0.0)
