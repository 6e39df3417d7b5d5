"""Step 2: what may not start is hidden from the policy, and what must leave is seen as if it waited.

The order of CONSTRAINTS is the specification: each sees what those before it left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from scheduling.engine.constraints.borrowing import block_nonpreemptible_borrowers
from scheduling.engine.constraints.budget_parking import park_over_budget
from scheduling.engine.constraints.gpu_sharing import share_gpus
from scheduling.engine.constraints.host_resources import hide_short_of_host_resources
from scheduling.engine.state import Rank, RoundState

Constraint = Callable[[RoundState], RoundState]


def suspend_over_budget(state: RoundState) -> RoundState:
    """Jobs whose hard budget is used up write a checkpoint and leave."""
    effect = park_over_budget(state.original)
    return state.hide(effect.changed).explained(Rank.BUDGET, effect.reasons)


def bundle_fractional_jobs(state: RoundState) -> RoundState:
    """Jobs with a GPU share join others, or are bundled into jobs of one GPU."""
    if state.policy.capabilities.places_gpu_parts:
        return state
    shared = share_gpus(state.snapshot, state.policy, state.unavailable.may_stay)
    if not (shared.changed or shared.joined or shared.bundles):
        return state
    return replace(state, shared=shared).hide(shared.changed)


def hide_without_host_resources(state: RoundState) -> RoundState:
    """Jobs that no node has processors and memory for."""
    effect = hide_short_of_host_resources(state.snapshot, state.policy, state.unavailable.may_stay)
    return state.hide(effect.changed).explained(Rank.HOST_RESOURCES, effect.reasons)


def keep_from_borrowing(state: RoundState) -> RoundState:
    """Jobs that never give GPUs back borrow none that are guaranteed to others."""
    effect = block_nonpreemptible_borrowers(state.snapshot, state.policy)
    return state.hide(effect.changed).explained(Rank.BORROWING, effect.reasons)


#: Those that are asked again once bundles of fractional jobs were taken apart.
AFTER_UNBUNDLING: tuple[Constraint, ...] = (hide_without_host_resources, keep_from_borrowing)
CONSTRAINTS: tuple[Constraint, ...] = (suspend_over_budget, bundle_fractional_jobs, *AFTER_UNBUNDLING)


def constrain(state: RoundState, constraints: Iterable[Constraint] = CONSTRAINTS) -> RoundState:
    for apply in constraints:
        state = apply(state)
    return state
