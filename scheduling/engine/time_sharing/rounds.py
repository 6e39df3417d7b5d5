"""Rounds that realise time shares (spec: heterogeneity-policies, "Round mechanism").

At each round's end jobs are taken by descending priority: the promised time on a type over the time received there
since the last computation. In between, running jobs continue, and idle GPUs go to queued ones. The state is plain
values in the plan's memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np

from scheduling.capacity.cluster_view import RoundView, view
from scheduling.domain import Allocation, Gang, Job, Snapshot
from scheduling.engine.time_sharing.allocation_builder import AllocationBuilder, reasons_of
from scheduling.engine.time_sharing.gavel_rounds import share_time_as_reference
from scheduling.engine.time_sharing.job_columns import columns_of
from scheduling.engine.time_sharing.shares_ledger import (
    EDGE_S,
    TimeShareState,
    charge_elapsed,
    compute,
    forget_ended,
    rules_of,
    signature_of,
)
from scheduling.policies.base import Policy
from scheduling.policies.capabilities import Needs
from scheduling.policies.time_shares.base import FractionParameters
from scheduling.policies.time_shares.programs.last_answer import MEMORY


def share_time(snapshot: Snapshot, field: RoundView, policy: Policy) -> Allocation:
    """Whole gangs for this round, by the policy's time shares; raises what the policy raises."""
    settings = policy.parameters
    assert isinstance(settings, FractionParameters)
    if settings.compatible:
        return share_time_as_reference(snapshot, field, policy)
    ledger = TimeShareState.load(snapshot.memory)
    rules = rules_of(policy.name, settings)
    builder = AllocationBuilder(field)
    if snapshot.now >= round_end(snapshot.memory) or rules != ledger.rules:
        ledger.rules = rules
        _refresh(ledger, snapshot, field, policy, aged_after_s=settings.recompute_seconds)
        _keep(_leased_jobs(ledger, snapshot, field, settings), builder)
        _assign(ledger, snapshot, field, policy, builder)
        ledger.began = _start_times(ledger, snapshot, field, builder)
        ledger.round_end = snapshot.now + settings.round_seconds
    else:
        _keep(field.running, builder)
        if _is_contended(field, builder):
            _refresh(ledger, snapshot, field, policy, aged_after_s=math.inf)
        _assign(ledger, snapshot, field, policy, builder)
        ledger.began |= {job.id: snapshot.now for job in field.queued if job.id in builder.counts}
    return Allocation(
        counts=builder.counts,
        reasons=reasons_of(ledger, snapshot, field, builder),
        memory={MEMORY: ledger.dump()},
        figures=ledger.figures,
        next_wake_at=ledger.round_end if any(map(_takes_turns, snapshot.jobs)) else None,
    )


def _takes_turns(job: Job) -> bool:
    """Whether the job takes turns in later rounds, even if it is launching now. Jobs that cannot leave their GPUs do
    not."""
    return not job.held and (not job.gpu_ids or (job.restartable and job.resizable))


def round_end(memory: Mapping[str, Any]) -> float:
    """When the round recorded in a plan's memory ends."""
    return float(memory[MEMORY]["round_end"]) - EDGE_S if MEMORY in memory else -math.inf


def with_least_gangs(snapshot: Snapshot) -> Snapshot:
    """Time shares refer to a job's least gang: if no type can train on that (its batch does not fit on so few GPUs),
    the least gang on which some type can."""
    field = view(snapshot)
    least, known = dict[str, int](), field.known.trains_on_least
    for job in [job for job in field.candidates if known.jobs.get(job.id) is not job]:
        if (low := field.spans(job).least) > job.min_gpus:
            least[job.id] = low
        else:
            known.add(job)
    if not least:
        return snapshot
    jobs = (replace(job, min_gpus=least[job.id]) if job.id in least else job for job in snapshot.jobs)
    return replace(snapshot, jobs=tuple(jobs))


def _refresh(
    ledger: TimeShareState, snapshot: Snapshot, field: RoundView, policy: Policy, *, aged_after_s: float
) -> None:
    """Recompute time shares if jobs, GPUs or throughputs changed, or if they are old and depend on time."""
    job_columns = columns_of(snapshot, field)
    signature = signature_of(snapshot, job_columns, field, policy)
    aged = snapshot.now >= ledger.computed_at + aged_after_s
    if signature == ledger.signature and math.isinf(aged_after_s):
        return
    charge_elapsed(ledger, job_columns, snapshot.now)
    changes = policy.capabilities.time_dependent or Needs.PAIRS in policy.capabilities.needs or ledger.problem
    if signature != ledger.signature or (aged and changes):
        compute(ledger, snapshot, policy, signature)
    elif aged:
        forget_ended(ledger, snapshot)
    ledger.figures = {**ledger.figures, "deviation": _debts(ledger, snapshot.now)}


def _is_contended(field: RoundView, builder: AllocationBuilder) -> bool:
    """Whether several jobs compete for idle GPUs, so that their order matters."""
    if not any(free > 0 for free in builder.free.values()):
        return False
    fits = (
        job for job in field.queued if any(builder.fits(job, Gang(kind, job.min_gpus)) for kind in field.spans(job))
    )
    return sum(1 for _ in islice(fits, 2)) == 2


def _leased_jobs(
    ledger: TimeShareState, snapshot: Snapshot, field: RoundView, settings: FractionParameters
) -> list[Job]:
    """Jobs with a time share of the type they hold that started too recently to be worth another restart."""
    job_columns, books = columns_of(snapshot, field), ledger.books
    short = (
        snapshot.now - ledger.start_times(job_columns) + EDGE_S
    ) * settings.restart_part < job_columns.restart_cost_s
    recent = (job_columns.jobs[n] for n in np.nonzero(short)[0].tolist())
    return [
        job for job in recent if job.id not in field.reasons and job.gang and books.share(job.id, job.gang.type) > 0
    ]


def _start_times(
    ledger: TimeShareState, snapshot: Snapshot, field: RoundView, builder: AllocationBuilder
) -> dict[str, float]:
    """When each job that holds GPUs now got them."""
    began, now = ledger.began, snapshot.now
    found = {key: began.get(key, now) for key in builder.counts}
    found |= {job.id: began[job.id] for job in field.pinned if job.id in began}
    return found | {job.id: now for job in builder.moved}


def _keep(jobs: Iterable[Job], builder: AllocationBuilder) -> None:
    for job in jobs:
        if job.gang is not None:
            builder.give(job, job.gang)


def _assign(
    ledger: TimeShareState, snapshot: Snapshot, field: RoundView, policy: Policy, builder: AllocationBuilder
) -> None:
    """Assign types to jobs, beside those that keep their GPUs."""
    if not any(free > 0 for free in builder.free.values()):
        return
    counts, free = builder.counts, builder.free
    waiting = [job for job in field.candidates if job.id not in counts]
    for job, kind in _ranked(ledger, snapshot.now, waiting, free):
        least = job.min_gpus
        if least <= free[kind] and job.id not in counts:
            held = job.gang
            gang = held if held and held.type == kind and held.count == least else Gang(kind, least)
            if gang is not held:  # promised when there may have been other nodes
                span = field.spans(job).get(kind)
                if span is None or span.low > least:
                    continue
            if job.limits and not builder.fits(job, gang):
                continue
            builder.give(job, gang)
    if policy.capabilities.work_conserving and any(free > 0 for free in builder.free.values()):
        _fill(field, [job for job in waiting if job.id not in builder.counts], builder)


def _ranked(ledger: TimeShareState, now: float, jobs: list[Job], free: Mapping[str, int]) -> Iterable[tuple[Job, str]]:
    """Jobs with each type that they have a share of and that fits, by descending priority. Ties: the debt over all
    types and on this one, then the share, then jobs without GPUs first, then queue order."""
    books, since = ledger.books, max(now - ledger.computed_at, 0.0)
    row_of = books.rows_of([job.id for job in jobs])
    if row_of.max(initial=-1) < 0:
        return []
    asked = np.array([job.min_gpus for job in jobs], dtype=np.int64)
    most = np.array([free.get(kind, 0) for kind in books.types], dtype=np.int64)
    number, kind = np.nonzero((row_of >= 0)[:, None] & (books.shares[row_of] > 0) & (asked[:, None] <= most))
    row = row_of[number]
    share, here = books.shares[row, kind], books.had[row, kind]
    due = share * since
    priority = np.where(here > 0, due / np.where(here > 0, here, 1.0), np.inf)
    holds = np.array([job.gang is not None for job in jobs])[number]
    ranks = (-priority, -books.debts(row, since), here - due, -share, holds, number, kind)
    order = np.lexsort(ranks[::-1])
    return [(jobs[n], books.types[k]) for n, k in zip(number[order].tolist(), kind[order].tolist(), strict=True)]


def _debts(ledger: TimeShareState, now: float) -> float:
    """For each job: seconds promised on all types since the computation, less those received."""
    books = ledger.books
    (rows,) = np.nonzero(books.shares.any(axis=1))
    return float(books.debts(rows, max(now - ledger.computed_at, 0.0)).max()) if len(rows) else 0.0


def _fill(field: RoundView, waiting: list[Job], builder: AllocationBuilder) -> None:
    """Assign idle GPUs to queued jobs, the fastest type that fits first. `waiting` is in queue order."""
    free = builder.free
    for job in waiting:
        least = job.min_gpus
        able = [(kind, span) for kind, span in field.spans(job).items() if span.low <= least <= free.get(kind, 0)]
        for speed, kind in sorted([(span.at(least), kind) for kind, span in able], reverse=True):
            gang = Gang(kind, least)
            if speed > 0 and builder.fits(job, gang):
                builder.give(job, gang)
                break
