"""Step 3: asks the policy, with a fallback if it fails."""

from __future__ import annotations

from dataclasses import replace

from scheduling.capacity.cluster_view import view
from scheduling.domain import Allocation, Reason, Snapshot
from scheduling.domain.reason_codes import ReasonCode
from scheduling.engine.check_answer import check_answer
from scheduling.engine.constraints.victim_protection import ask_protecting_guarantees
from scheduling.engine.state import RoundState
from scheduling.engine.time_sharing.rounds import share_time, with_least_gangs
from scheduling.errors import SolverError
from scheduling.policies.base import Policy
from scheduling.policies.queue.fallback import start_minimums


def ask_policy(state: RoundState) -> RoundState:
    """Ask again around jobs that cannot leave a drained node yet, and around preempted jobs that are never resized."""
    while True:
        try:
            allocation = _answer(state.snapshot, state.policy)
            given = check_answer(state.snapshot, allocation)
        except SolverError as error:
            allocation = start_minimums(state.snapshot, str(error))
            given = allocation.counts or {}
        if preempted := _preempted(state.snapshot, allocation):
            state = replace(state, unavailable=state.unavailable.without(preempted))
            continue
        staying = [key for key in state.unavailable.may_stay if key not in given]
        if not staying:
            return replace(state, allocation=allocation)
        state = replace(state, unavailable=state.unavailable.keep(staying))


def _answer(snapshot: Snapshot, policy: Policy) -> Allocation:
    if not policy.capabilities.shares_time:
        return ask_protecting_guarantees(snapshot, policy)
    snapshot = with_least_gangs(snapshot)
    return share_time(snapshot, view(snapshot), policy)


def _preempted(snapshot: Snapshot, allocation: Allocation) -> dict[str, Reason]:
    """Preempted jobs that are never resized. They leave all their GPUs to a higher QoS, so other jobs can have
    these."""
    rigid = (job.id for job in snapshot.jobs if not job.resizable and job.id in allocation.reasons)
    return {key: reason for key in rigid if (reason := allocation.reasons[key]).token == ReasonCode.PREEMPTED}
