"""Rounds that realise fractions of time (spec: heterogeneity-policies, "Round mechanism").

At each round's end jobs are walked by descending priority: what a job was promised on a type over what it had there
since the last computation. In between, whoever runs goes on, and idle GPUs go to those that wait. What has to be
remembered is plain values in the plan's memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from scheduling._compatible import share_time_as_reference
from scheduling._hands import Hands, reasons_of
from scheduling._ledger import EDGE_S, Ledger, account, compute, owe_newcomers, rules_of, settle, signature_of
from scheduling.domain import Allocation, Gang, Job, Snapshot
from scheduling.policies._fraction_policy import FractionParameters
from scheduling.policies._memory import MEMORY
from scheduling.policies._view import View, view
from scheduling.policies.base import Policy


def share_time(snapshot: Snapshot, field: View, policy: Policy) -> Allocation:
    """Whole gangs for the moment, by the policy's fractions; raises what the policy raises."""
    settings = policy.parameters
    assert isinstance(settings, FractionParameters)
    if settings.compatible:
        return share_time_as_reference(snapshot, field, policy)
    ledger = Ledger.load(snapshot.memory)
    rules = rules_of(policy.name, settings)
    hands = Hands(field)
    if snapshot.now >= round_end(snapshot.memory) or rules != ledger.rules:
        ledger.rules = rules
        account(ledger, snapshot)
        _refresh(ledger, snapshot, field, policy, settings.recompute_seconds)
        _give(ledger, snapshot, field, policy, hands, keeping=_on_lease(ledger, field, snapshot.now, settings))
        ledger.began = _beginnings(ledger, snapshot, field, hands)
        ledger.round_end = snapshot.now + settings.round_seconds
    else:
        _give(ledger, snapshot, field, policy, hands, keeping=field.running)
        ledger.began |= {job.id: snapshot.now for job in field.queued if job.id in hands.counts}
    return Allocation(
        counts=hands.counts,
        reasons=reasons_of(ledger, snapshot, field, hands),
        memory={MEMORY: ledger.dump()},
        figures=ledger.figures,
        next_wake_at=ledger.round_end if field.taking_part else None,
    )


def round_end(memory: Mapping[str, Any]) -> float:
    """When the round that a plan's memory tells of ends."""
    return float(memory[MEMORY]["round_end"]) - EDGE_S if MEMORY in memory else -math.inf


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


def _refresh(ledger: Ledger, snapshot: Snapshot, field: View, policy: Policy, every_s: float) -> None:
    """Fractions anew where jobs, GPUs or throughputs changed, or where they are old and time changes them."""
    signature = signature_of(snapshot, field, policy)
    if signature != ledger.signature:
        before = ledger.shares
        compute(ledger, snapshot, policy, signature)
        if before:
            owe_newcomers(ledger, snapshot, before)
    elif snapshot.now >= ledger.computed_at + every_s:
        if getattr(policy, "ages", True) or getattr(policy, "packs", False) or ledger.problem:
            compute(ledger, snapshot, policy, signature)
        else:
            settle(ledger, snapshot)
    debts = _debts(ledger, snapshot.now)
    ledger.figures = {**ledger.figures, "deviation": max(debts.values(), default=0.0)}


def _on_lease(ledger: Ledger, field: View, now: float, settings: FractionParameters) -> list[Job]:
    """Who has had its GPUs for too short a time to be worth another restart."""
    found, part, began = [], settings.restart_part, ledger.began
    for job in field.running:
        since = began.get(job.id)
        if since is not None and (now - since + EDGE_S) * part < job.restart_cost_s:
            found.append(job)
    return found


def _beginnings(ledger: Ledger, snapshot: Snapshot, field: View, hands: Hands) -> dict[str, float]:
    """When each of those that hold GPUs now was given them."""
    began, now = ledger.began, snapshot.now
    found = {job.id: began[job.id] for job in field.fixed if job.id in began}
    for job in field.taking_part:
        gang = hands.counts.get(job.id)
        if gang is not None:
            found[job.id] = began.get(job.id, now) if gang == job.gang else now
    return found


def _give(
    ledger: Ledger, snapshot: Snapshot, field: View, policy: Policy, hands: Hands, *, keeping: Iterable[Job]
) -> None:
    """Who gets which type now, beside those that are `keeping` what they have."""
    for job in keeping:
        if job.gang is not None:
            hands.give(job, job.gang)
    if not any(free > 0 for free in hands.free.values()):
        return
    waiting = [job for job in field.taking_part if job.id not in hands.counts]
    for job, kind in _ranked(ledger, snapshot.now, waiting):
        if job.id not in hands.counts and job.min_gpus <= hands.free.get(kind, 0):
            gang = Gang(kind, job.min_gpus)
            if hands.fits(job, gang):
                hands.give(job, gang)
    if getattr(policy, "fills", True) and any(free > 0 for free in hands.free.values()):
        _fill(field, [job for job in waiting if job.id not in hands.counts], hands)


def _ranked(ledger: Ledger, now: float, jobs: list[Job]) -> Iterable[tuple[Job, str]]:
    """By descending priority; ties by what is owed over all types and on this one, then by the promise, then by the
    queue."""
    since = max(now - ledger.computed_at, 0.0)
    debts = _debts(ledger, now)
    ranked = []
    for number, job in enumerate(jobs):
        by_type = ledger.shares.get(job.id)
        if by_type is None:
            continue
        had, debt = ledger.had.get(job.id, {}), debts[job.id]
        for kind, share in by_type.items():
            here, due = had.get(kind, 0.0), share * since
            priority = math.inf if here <= 0.0 else due / here
            ranked.append((-priority, -debt, here - due, -share, number, kind))
    ranked.sort()
    return [(jobs[number], kind) for *_, number, kind in ranked]


def _debts(ledger: Ledger, now: float) -> dict[str, float]:
    """By job: seconds that it was promised on all types since the computation, less those that it had."""
    since, had = max(now - ledger.computed_at, 0.0), ledger.had
    return {
        job: sum(by_type.values()) * since - sum(had[job].values() if job in had else ())
        for job, by_type in ledger.shares.items()
    }


def _fill(field: View, waiting: list[Job], hands: Hands) -> None:
    """GPUs that the fractions leave idle go to whoever waits, the fastest fit first. `waiting` is in queue order."""
    for job in waiting:
        gangs = [Gang(kind, job.min_gpus) for kind, span in field.spans(job).items() if span.low <= job.min_gpus]
        fits = [gang for gang in gangs if field.steps_per_s(job, gang) > 0 and hands.fits(job, gang)]
        if fits:
            hands.give(job, max(fits, key=lambda gang: (field.steps_per_s(job, gang), gang.type)))
