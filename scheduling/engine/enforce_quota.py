"""Step 6: trims the answer to the quotas of projects and people, for policies that ignore them."""

from __future__ import annotations

from dataclasses import replace

from scheduling.capacity.quota_headroom import exceeds_quota, trim_to_quota
from scheduling.engine.state import RoundState


def enforce_quota(state: RoundState) -> RoundState:
    field, allocation = state.view, state.allocation
    if not field.limits or allocation.counts is None or not exceeds_quota(field, allocation.counts):
        return state
    counts, reasons = trim_to_quota(field, allocation.counts)
    trimmed = replace(allocation, counts=counts, reasons={**allocation.reasons, **reasons})
    return replace(state, allocation=trimmed)
