"""Step 2: hides jobs that may not start, and shows jobs that must leave their GPUs to the policy as queued.

The order of CONSTRAINTS is the specification: each constraint sees the state that the previous ones left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from scheduling.engine.constraints.borrowing import block_nonpreemptible_borrowers
from scheduling.engine.constraints.budget_suspension import suspend_jobs_over_budget
from scheduling.engine.constraints.gpu_sharing import share_gpus
from scheduling.engine.constraints.host_resources import hide_short_of_host_resources
from scheduling.engine.state import Rank, RoundState

Constraint = Callable[[RoundState], RoundState]


def suspend_over_budget(state: RoundState) -> RoundState:
    """Suspend jobs with a checkpoint when their hard budget is used up."""
    effect = suspend_jobs_over_budget(state.original)
    return state.hide(effect.changed).explained(Rank.BUDGET, effect.reasons)


def bundle_fractional_jobs(state: RoundState) -> RoundState:
    """Join fractional jobs to shared GPUs, or bundle them into jobs of one GPU."""
    if state.policy.capabilities.places_gpu_parts:
        return state
    shared = share_gpus(state.snapshot, state.policy, state.unavailable.may_stay)
    if not (shared.changed or shared.joined or shared.bundles):
        return state
    return replace(state, shared=shared).hide(shared.changed)


def hide_without_host_resources(state: RoundState) -> RoundState:
    """Hide jobs for which no node has enough free CPUs and memory."""
    effect = hide_short_of_host_resources(state.snapshot, state.policy, state.unavailable.may_stay)
    return state.hide(effect.changed).explained(Rank.HOST_RESOURCES, effect.reasons)


def keep_from_borrowing(state: RoundState) -> RoundState:
    """Hide jobs that would borrow guaranteed GPUs and could never return them."""
    effect = block_nonpreemptible_borrowers(state.snapshot, state.policy)
    return state.hide(effect.changed).explained(Rank.BORROWING, effect.reasons)


#: Constraints that are applied again after bundles of fractional jobs were taken apart.
AFTER_UNBUNDLING: tuple[Constraint, ...] = (hide_without_host_resources, keep_from_borrowing)
CONSTRAINTS: tuple[Constraint, ...] = (suspend_over_budget, bundle_fractional_jobs, *AFTER_UNBUNDLING)


def constrain(state: RoundState, constraints: Iterable[Constraint] = CONSTRAINTS) -> RoundState:
    for apply in constraints:
        state = apply(state)
    return state
