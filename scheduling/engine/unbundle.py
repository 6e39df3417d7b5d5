"""Step 4: bundles of fractional jobs that did not start are taken apart."""

from __future__ import annotations

from dataclasses import replace

from scheduling.engine.ask_policy import ask_policy
from scheduling.engine.constraints import AFTER_UNBUNDLING, constrain
from scheduling.engine.state import RoundState


def unbundle_unstarted(state: RoundState) -> RoundState:
    """The constraints and the policy are asked again with the jobs of such bundles each for itself."""
    if state.shared is None:
        return state
    shared = state.shared.untied(state.view, state.allocation.counts or {})
    if shared is state.shared:
        return state
    state = replace(state, shared=shared).hide(shared.changed)
    return ask_policy(constrain(state, AFTER_UNBUNDLING))
