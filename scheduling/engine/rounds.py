"""One pass of the scheduler: turns a policy's answer into a plan that may be applied.

Spec: f-scheduling, "Application states" and "When a new plan is applied".
"""

from __future__ import annotations

from scheduling.domain import Plan, Snapshot
from scheduling.engine.accept import accept_or_keep
from scheduling.engine.add_starts import add_starts
from scheduling.engine.ask_policy import ask_policy
from scheduling.engine.constraints import CONSTRAINTS, constrain
from scheduling.engine.enforce_quota import enforce_quota
from scheduling.engine.normalise import normalise
from scheduling.engine.place import place
from scheduling.engine.reclaim_guarantees import reclaim_guarantees
from scheduling.engine.to_plan import to_plan
from scheduling.engine.unbundle import unbundle_unstarted
from scheduling.policies.base import Policy


def plan_round(snapshot: Snapshot, policy: Policy) -> Plan:
    """Ten steps over a frozen state; each is in the module of its name."""
    state = normalise(snapshot, policy)  # 1 whole GPUs; partitions and windows as node pools
    state = constrain(state, CONSTRAINTS)  # 2 hide jobs that may not start; show jobs that must leave as queued
    state = ask_policy(state)  # 3 with a fallback
    state = unbundle_unstarted(state)  # 4 fractional jobs whose bundle did not start: 2 and 3 again
    state = reclaim_guarantees(state)  # 5 guarantees' owners reclaim borrowed GPUs: 3 again around them
    state = enforce_quota(state)  # 6
    state = place(state)  # 7 counts become accelerators; gangs are consolidated
    state = accept_or_keep(state)  # 8 beyond limits, or not worth the restarts: all jobs keep their GPUs
    state = add_starts(state)  # 9 owners, gangs across pools, partners on shared GPUs
    return to_plan(state)  # 10 moves, reasons, memory, next wake-up
