"""Protects running jobs within their guarantee from preemption.

Without it the next round would reclaim what this one preempted, and two jobs would preempt each other forever. So the
job keeps its GPUs and the policy plans again around it. A job whose place within the guarantee goes to another job of
the project reclaims nothing, and may be preempted.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from scheduling.capacity.cluster_view import view
from scheduling.capacity.guarantee_usage import GuaranteeUsage
from scheduling.domain import Allocation, Gang, Reason, Snapshot
from scheduling.domain.reason_codes import ReasonCode
from scheduling.lifecycle import State
from scheduling.policies.base import Policy

PROTECTED = Reason(ReasonCode.WITHIN_GUARANTEE, "It runs within its project's guarantee, so it keeps its GPUs.")


def ask_protecting_guarantees(snapshot: Snapshot, policy: Policy) -> Allocation:
    """Ask the policy at most three times; the third time all jobs that run within a guarantee are pinned."""
    allocation = policy.allocate(snapshot)
    if not snapshot.guarantees or not policy.capabilities.preempts or policy.capabilities.respects_guarantees:
        return allocation
    spared = _would_reclaim(snapshot, allocation.counts or {})
    if not spared:
        return allocation
    allocation = _around(snapshot, policy, spared)
    more = _would_reclaim(snapshot, allocation.counts or {})
    return _around(snapshot, policy, _all_within(snapshot)) if more else allocation


def _would_reclaim(snapshot: Snapshot, counts: Mapping[str, Gang]) -> set[str]:
    """Preempted jobs that ran within a guarantee which still has room for them beside the jobs that would run."""
    field, found = view(snapshot), set[str]()
    out = {job.id for job in field.running if job.id not in counts}
    if not out:
        return found
    book = GuaranteeUsage(snapshot)
    running = {job.id for job in field.running}
    for job, gang in book.holders:
        if job.id in running:
            book.book(job, gang, -1)
    for job in field.candidates:
        if job.id in counts:
            book.book(job, counts[job.id])
    for job, gang in book.holders:
        if job.id in out and book.within.get(job.id) and book.has_room(job, gang):
            book.book(job, gang)
            found.add(job.id)
    return found


def _all_within(snapshot: Snapshot) -> set[str]:
    within = GuaranteeUsage(snapshot).within
    return {job.id for job in view(snapshot).running if within.get(job.id)}


def _around(snapshot: Snapshot, policy: Policy, spared: Collection[str]) -> Allocation:
    """Ask with the spared jobs marked as not restartable."""
    jobs = tuple(
        replace(job, restartable=False) if job.id in spared and job.state is State.RUNNING else job
        for job in snapshot.jobs
    )
    allocation = policy.allocate(replace(snapshot, jobs=jobs))
    return replace(allocation, reasons={**allocation.reasons, **dict.fromkeys(spared, PROTECTED)})
