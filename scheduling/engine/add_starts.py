"""Step 9: adds starts to the policy's answer: jobs of guarantees' owners, gangs across pools, partners on shared
GPUs."""

from __future__ import annotations

from dataclasses import replace

from scheduling.engine.accept import present
from scheduling.engine.placement.cross_pool import start_across_pools
from scheduling.engine.placement.node_bounds import keep_to_nodes
from scheduling.engine.reclaim.reclaim import in_order
from scheduling.engine.state import Rank, RoundState


def add_starts(state: RoundState) -> RoundState:
    return _partners(_within_node_bounds(_gangs_across_pools(_owners(state))))


def _owners(state: RoundState) -> RoundState:
    """Start jobs within their projects' guarantees."""
    grants = state.reclaimed.grants if state.reclaimed else ()
    if not grants:
        return state
    gpus = {grant.job.id: grant.gpus for grant in grants}
    gangs = {grant.job.id: grant.gang for grant in grants}
    return replace(state, placement=state.placement.with_starts(gpus, gangs))


def _gangs_across_pools(state: RoundState) -> RoundState:
    """Start jobs whose gang fits in no single node pool."""
    if state.pools is None:
        return state
    can, placement = state.policy.capabilities, state.placement
    queue = in_order(state.policy, state.snapshot, state.view)
    only_wide = can.shares_time or can.places_gpu_parts
    found = start_across_pools(state.pools, state.view, queue, placement.gpus, placement.gangs, only_wide=only_wide)
    return replace(state, placement=placement.with_starts(*found))


def _within_node_bounds(state: RoundState) -> RoundState:
    placement, too_wide = keep_to_nodes(state.snapshot, state.view, state.placement)
    if too_wide:
        return replace(state, placement=present(state.view), rejected=too_wide)
    return state if placement is state.placement else replace(state, placement=placement)


def _partners(state: RoundState) -> RoundState:
    """Start fractional jobs on GPUs that other jobs share."""
    if state.shared is None:
        return state
    placement, reasons = state.shared.complete(state.placement, state.allocation.reasons)
    return replace(state, placement=placement).explained(Rank.GPU_SHARING, reasons)
