"""Step 10: the moves with their reasons, the memory for the next round, and the time of the next look."""

from __future__ import annotations

from collections.abc import Mapping

from scheduling.domain import Plan, Reason
from scheduling.engine.explain.outcome import diff_moves, explain_outcome, next_wake_at
from scheduling.engine.explain.partition_reasons import PartitionReasons, plan_in_plain_types
from scheduling.engine.reclaim.reclaim import CLAIMS, ReclaimDecision
from scheduling.engine.state import Rank, RoundState


def to_plan(state: RoundState) -> Plan:
    field, placement, allocation = state.view, state.placement, state.allocation
    reclaimed = state.reclaimed or ReclaimDecision()
    own = merged_reasons(state.explained(Rank.RECLAIM, reclaimed.reasons(placement.gangs)))
    words = PartitionReasons(state.pools, field, placement.gangs) if state.pools else None
    reasons = explain_outcome(state.unavailable, field, allocation, placement, state.rejected, own, words)
    moves = diff_moves(state.original, state.unavailable, field, placement, reasons)
    plan = Plan(
        moves=moves,
        reasons=reasons,
        memory={**allocation.memory, CLAIMS: reclaimed.claims} if reclaimed.claims else allocation.memory,
        figures=allocation.figures,
        next_wake_at=next_wake_at(state.original, state.policy, allocation, moves, reclaimed),
        rejected=state.rejected.text if state.rejected else None,
    )
    return plan if state.pools is None else plan_in_plain_types(plan)


#: Jobs that must leave their GPUs keep that reason.
_BELOW_LEAVING = (Rank.GPU_SHARING, Rank.HOST_RESOURCES)


def merged_reasons(state: RoundState) -> Mapping[str, Reason]:
    """The one place where the reasons of steps meet: each job gets the one of the highest rank."""
    merged: dict[str, Reason] = {}
    leaving = state.unavailable.leaving
    for rank in sorted(state.reasons):
        hidden = leaving if rank in _BELOW_LEAVING else ()
        merged |= {key: reason for key, reason in state.reasons[rank].items() if key not in hidden}
    return merged
