"""One pass of the scheduler: what a policy wants becomes a Plan that may be applied.

Spec: f-scheduling, "Application states" and "When a new plan is applied".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import chain

from scheduling.capacity.cluster_view import RoundView, view
from scheduling.capacity.memo import cluster_index
from scheduling.capacity.node_pools import Pools, divide
from scheduling.capacity.quota_headroom import exceeds_quota, trim_to_quota
from scheduling.domain import Allocation, Gang, Job, Plan, Reason, Snapshot
from scheduling.domain.gpu_parts import overfull
from scheduling.engine.consolidation import consolidate_gangs
from scheduling.engine.constraints.borrowing import block_nonpreemptible_borrowers
from scheduling.engine.constraints.budget_parking import park_over_budget
from scheduling.engine.constraints.gpu_sharing import as_whole_gpus, share_gpus
from scheduling.engine.constraints.host_resources import hide_short_of_host_resources
from scheduling.engine.constraints.unavailable_nodes import Unavailable, displace
from scheduling.engine.constraints.victim_protection import ask_sparing_guaranteed
from scheduling.engine.cross_pool import start_across_pools
from scheduling.engine.explain.outcome import Layout, diff_moves, explain_round, next_wake_at
from scheduling.engine.explain.partition_reasons import PartitionReasons, plan_in_plain_types
from scheduling.engine.node_bounds import keep_to_nodes
from scheduling.engine.placement import Board, Request, lay_out
from scheduling.engine.reclaim.reclaim import CLAIMS, ReclaimDecision, in_order, reclaim
from scheduling.engine.time_sharing.rounds import share_time, with_least_gangs
from scheduling.errors import SolverError
from scheduling.policies.base import ElasticParameters, Policy
from scheduling.policies.queue.fallback import start_minimums
from scheduling.policies.queue.preemption import PREEMPTED


def plan_round(snapshot: Snapshot, policy: Policy) -> Plan:
    """Where not all jobs may use all nodes, what follows sees pools of nodes as types."""
    snapshot = snapshot if policy.capabilities.places_gpu_parts else as_whole_gpus(snapshot)
    divided = divide(snapshot)
    if divided.pools is None:
        return _plan(snapshot, policy, None)
    return plan_in_plain_types(_plan(divided.snapshot, policy, divided.pools))


def _plan(snapshot: Snapshot, policy: Policy, pools: Pools | None) -> Plan:
    # 1 take jobs off lost, drained and reserved nodes, and those whose hard budget is used up off their GPUs
    displaced = displace(snapshot)
    parked = park_over_budget(snapshot)
    displaced = displaced.change(parked.changed)
    parts = None if policy.capabilities.places_gpu_parts else share_gpus(displaced.snapshot, policy, displaced.may_stay)
    if parts is not None:
        displaced = displaced.change(parts.changed)
    crowded = hide_short_of_host_resources(displaced.snapshot, policy, displaced.may_stay)
    displaced = displaced.change(crowded.changed)
    kept = block_nonpreemptible_borrowers(displaced.snapshot, policy)
    displaced = displaced.change(kept.changed)
    # 2 ask the policy; a job that cannot leave a drained node yet stays there, and the policy plans around it
    allocation, displaced = _allocate(displaced, policy)
    if parts is not None and (untied := parts.untied(view(displaced.snapshot), allocation.counts or {})) is not parts:
        parts, displaced = untied, displaced.change(untied.changed)
        crowded = crowded.and_of(hide_short_of_host_resources(displaced.snapshot, policy, displaced.may_stay))
        displaced = displaced.change(crowded.changed)
        kept = block_nonpreemptible_borrowers(displaced.snapshot, policy)
        allocation, displaced = _allocate(displaced.change(kept.changed), policy)
    # 3 take back what is guaranteed to those whom it leaves waiting, and have it plan around them
    given = {*(allocation.counts or allocation.placements or ()), *displaced.may_stay}
    back = reclaim(displaced.all_staying.snapshot, policy, given)
    if back.takings:
        allocation, displaced = _allocate(displaced.change(back.changed), policy)
    field = view(displaced.snapshot)
    allocation = _within_limits(field, allocation)
    # 4 lay its counts out on accelerators
    layout = _lay_out(displaced.snapshot, field, allocation, gathers=policy.capabilities.consolidates)
    # 5 apply it only where it pays
    rejected = _beyond_limits(field, layout) or _not_worth_it(displaced.snapshot, field, policy, layout)
    if rejected:
        layout = _present(field)
    layout = _with_owners(layout, back)
    if pools is not None:
        layout = _across_pools(pools, displaced.snapshot, policy, layout)
    layout, too_wide = keep_to_nodes(displaced.snapshot, field, layout)
    if too_wide:
        layout, rejected = _present(field), too_wide
    layout, beside = parts.complete(layout, allocation.reasons) if parts is not None else (layout, {})
    # 6 say what changes and why
    own = {key: reason for key, reason in beside.items() if key not in displaced.leaving}
    own |= {key: reason for key, reason in crowded.reasons.items() if key not in displaced.leaving}
    own |= {**kept.reasons, **parked.reasons, **back.reasons(layout.gangs)}
    words = PartitionReasons(pools, field, layout.gangs) if pools else None
    reasons = explain_round(displaced, field, allocation, layout, rejected, own, words)
    moves = diff_moves(snapshot, displaced, field, layout, reasons)
    return Plan(
        moves=moves,
        reasons=reasons,
        memory={**allocation.memory, CLAIMS: back.claims} if back.claims else allocation.memory,
        figures=allocation.figures,
        next_wake_at=next_wake_at(snapshot, policy, allocation, moves, back),
        rejected=rejected.text if rejected else None,
    )


def _with_owners(layout: Layout, back: ReclaimDecision) -> Layout:
    """And those who start on what they are guaranteed."""
    if not back.takings:
        return layout
    gpus = {taking.job.id: taking.gpus for taking in back.takings}
    return Layout({**layout.gpus, **gpus}, {**layout.gangs, **{one.job.id: one.gang for one in back.takings}})


def _across_pools(pools: Pools, snapshot: Snapshot, policy: Policy, layout: Layout) -> Layout:
    """And those whose gang no pool of nodes alone has room for."""
    field = view(snapshot)
    queue = in_order(policy, snapshot, field)
    only_wide = policy.capabilities.shares_time or policy.capabilities.places_gpu_parts
    gpus, gangs = start_across_pools(pools, field, queue, layout.gpus, layout.gangs, only_wide=only_wide)
    return Layout({**layout.gpus, **gpus}, {**layout.gangs, **gangs}) if gpus else layout


# 2 allocate ----------------------------------------------------------------------------------------


def _allocate(displaced: Unavailable, policy: Policy) -> tuple[Allocation, Unavailable]:
    while True:
        try:
            allocation = _ask(displaced.snapshot, policy)
            given = _checked(displaced.snapshot, allocation)
        except SolverError as error:
            allocation = start_minimums(displaced.snapshot, str(error))
            given = allocation.counts or {}
        if put_out := _put_out(displaced.snapshot, allocation):
            displaced = displaced.without(put_out)
            continue
        staying = [key for key in displaced.may_stay if key not in given]
        if not staying:
            return allocation, displaced
        displaced = displaced.keep(staying)


def _put_out(snapshot: Snapshot, allocation: Allocation) -> dict[str, Reason]:
    """Who leaves all its GPUs for a higher level of service though it is never resized: others get them then."""
    fixed = (job.id for job in snapshot.jobs if not job.resizable and job.id in allocation.reasons)
    return {key: reason for key in fixed if (reason := allocation.reasons[key]).token == PREEMPTED}


def _ask(snapshot: Snapshot, policy: Policy) -> Allocation:
    if not policy.capabilities.shares_time:
        return ask_sparing_guaranteed(snapshot, policy)
    snapshot = with_least_gangs(snapshot)
    return share_time(snapshot, view(snapshot), policy)


def _checked(snapshot: Snapshot, allocation: Allocation) -> Mapping[str, object]:
    """Who is given GPUs. An answer that cannot be carried out is treated like a failed solver."""
    if allocation.counts is not None:
        return allocation.counts
    if allocation.placements is None:
        raise SolverError("an answer in fractions of time from a policy that does not say so")
    field = view(snapshot)
    part, types = {job.id for job in field.candidates}, cluster_index(snapshot.nodes).type_of
    gpus = [gpu for key, ids in allocation.placements.items() if key in part for gpu in ids]
    twice = any(len(ids) != len(set(ids)) for ids in allocation.placements.values())
    over = overfull(snapshot, field.pinned, field.candidates, allocation.placements)
    if twice or over is not None or not types.keys() >= set(gpus):
        raise SolverError("a placement on accelerators that are not free")
    gangs = {key: Gang(types[ids[0]], len(ids)) for key, ids in allocation.placements.items() if ids}
    if field.limits and exceeds_quota(field, gangs):
        raise SolverError("a placement beyond the limits of its jobs")
    return {key: ids for key, ids in allocation.placements.items() if ids}


def _within_limits(field: RoundView, allocation: Allocation) -> Allocation:
    """No subtree of projects and no person gets more than their limits allow, whatever the policy minds."""
    if not field.limits or allocation.counts is None or not exceeds_quota(field, allocation.counts):
        return allocation
    counts, reasons = trim_to_quota(field, allocation.counts)
    return replace(allocation, counts=counts, reasons={**allocation.reasons, **reasons})


# 4 lay out -----------------------------------------------------------------------------------------


def _lay_out(snapshot: Snapshot, field: RoundView, allocation: Allocation, *, gathers: bool) -> Layout:
    """`gathers`: whoever runs may be moved for gangs to be on one node."""
    if allocation.placements is not None:
        return _given(snapshot, field, allocation.placements)
    counts = allocation.counts or {}
    requests, kept, placed = list[Request](), list[Request](), dict[str, tuple[int, ...]]()
    for job in field.candidates:
        gang = counts.get(job.id)
        if gang is None or gang.count <= 0:
            continue
        if gang is job.gang and gang.count == len(job.gpu_ids) and not gathers:  # as most do
            placed[job.id] = job.gpu_ids
            continue
        same = job.gang is not None and job.gang.type == gang.type
        if same and gang.count == len(job.gpu_ids):
            placed[job.id] = job.gpu_ids
            if gathers:
                kept.append(Request(job, gang, job.gpu_ids))
        else:
            span = field.spans(job).get(gang.type)
            requests.append(Request(job, gang, job.gpu_ids if same else (), span.low if span else gang.count))
    gangs = {key: counts[key] for key in placed}
    if requests or gathers:
        held = (job.gpu_ids for job in field.pinned), placed.values(), (request.held for request in requests)
        taken = snapshot.blocked_gpu_ids.union(*chain(*held))
        staying = chain(field.pinned, (job for job in field.candidates if job.id in counts))
        board = Board(snapshot.nodes, taken, staying)
        gpus = lay_out(board, requests, multi_node=field.multi_node)
        placed |= gpus
        if gathers:
            consolidate_gangs(board, [*kept, *requests], placed)
        for key, ids in gpus.items():
            gang = counts[key]
            gangs[key] = gang if gang.count == len(ids) else replace(gang, count=len(ids))
    return Layout(placed, gangs)


def _given(snapshot: Snapshot, field: RoundView, placements: Mapping[str, tuple[int, ...]]) -> Layout:
    """A packing policy names accelerators itself; what is fixed stays out of its reach."""
    types, part = cluster_index(snapshot.nodes).type_of, {job.id for job in field.candidates}
    gpus = {key: tuple(ids) for key, ids in placements.items() if key in part and ids}
    return Layout(gpus, {key: Gang(types[ids[0]], len(ids)) for key, ids in gpus.items()})


def _present(field: RoundView) -> Layout:
    """Everybody keeps what they have and nobody starts."""
    holding = [job for job in field.running if job.gang is not None]
    return Layout({job.id: job.gpu_ids for job in holding}, {job.id: job.gang for job in holding if job.gang})


# 5 worth it? ---------------------------------------------------------------------------------------


def _beyond_limits(field: RoundView, layout: Layout) -> Reason | None:
    """The last word on limits: what was laid out on accelerators keeps them too, or nobody moves."""
    if not field.limits or not exceeds_quota(field, layout.gangs):
        return None
    return Reason("limits", "The plan of this round would have passed a limit, so GPUs stay where they are.")


def _not_worth_it(snapshot: Snapshot, field: RoundView, policy: Policy, layout: Layout) -> Reason | None:
    """The paper's rule: a plan raises throughput enough over the jobs that survive, or it starts a job."""
    if not policy.capabilities.elastic:
        return None
    changed = [job for job in field.running if layout.gpus.get(job.id) != job.gpu_ids]
    if not changed or any(job.id in layout.gpus for job in field.queued):
        return None
    survive = [job for job in field.running if job.id in layout.gpus]
    before = sum(field.steps_per_s(job, job.gang) for job in survive)
    after = sum(field.steps_per_s(job, layout.gangs[job.id]) for job in survive)
    gain = after - before
    settings = policy.parameters
    if not isinstance(settings, ElasticParameters):
        return None
    if settings.amortise:
        return _not_amortised(snapshot, field, layout, changed, gain)
    least = settings.min_gain
    if settings.min_gain_kind == "relative":
        least *= before
    else:
        least *= float(snapshot.settings.get("speedup", 1.0))  # an emulated speed-up multiplies curves and min_gain
    if gain >= least:
        return None
    text = (
        f"Another split would add {gain:.3g} steps/s and a change must add at least {least:.3g}, "
        "so GPUs stay where they are."
    )
    return Reason("min_gain", text, {"gain": gain, "min_gain": least})


def _not_amortised(
    snapshot: Snapshot, field: RoundView, layout: Layout, changed: list[Job], gain: float
) -> Reason | None:
    """Steps gained until the next expected event against the steps lost to restarts."""
    speeds = {job.id: field.steps_per_s(job, job.gang) for job in field.running}
    ends = [job.remaining_steps / speeds[job.id] for job in field.running if speeds[job.id] and job.remaining_steps]
    seconds = snapshot.next_event_s if snapshot.next_event_s is not None else min(ends, default=0.0)
    lost = sum(field.steps_per_s(job, layout.gangs.get(job.id)) * job.restart_cost_s for job in changed)
    if gain * seconds > lost:
        return None
    text = (
        f"Another split would gain {max(0.0, gain * seconds):.0f} steps until the next expected event "
        f"in {seconds:.0f} s and lose {lost:.0f} to restarts, so GPUs stay where they are."
    )
    return Reason("not_amortised", text, {"gained_steps": gain * seconds, "lost_steps": lost})
