"""Step 5: reclaims borrowed GPUs for pending jobs of guarantees' owners."""

from __future__ import annotations

from dataclasses import replace

from scheduling.engine.ask_policy import ask_policy
from scheduling.engine.reclaim.reclaim import reclaim
from scheduling.engine.state import RoundState


def reclaim_guarantees(state: RoundState) -> RoundState:
    """Where GPUs are reclaimed, the policy is asked again around them."""
    if not state.original.guarantees:
        return state
    allocation, unavailable = state.allocation, state.unavailable
    given = {*(allocation.counts or allocation.placements or ()), *unavailable.may_stay}
    reclaimed = reclaim(unavailable.all_staying.snapshot, state.policy, given)
    state = replace(state, reclaimed=reclaimed)
    return ask_policy(state.hide(reclaimed.changed)) if reclaimed.grants else state
