"""Step 4: takes bundles of fractional jobs apart that did not start."""

from __future__ import annotations

from dataclasses import replace

from scheduling.engine.ask_policy import ask_policy
from scheduling.engine.constraints import AFTER_UNBUNDLING, constrain
from scheduling.engine.state import RoundState


def unbundle_unstarted(state: RoundState) -> RoundState:
    """Apply the constraints and ask the policy again, with the jobs of such bundles separate."""
    if state.shared is None:
        return state
    shared = state.shared.unbundled(state.view, state.allocation.counts or {})
    if shared is state.shared:
        return state
    state = replace(state, shared=shared).hide(shared.changed)
    return ask_policy(constrain(state, AFTER_UNBUNDLING))
