"""What fractions of time were promised and had: plain values in the plan's memory, from one round to the next."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from typing import Any

from scheduling.domain import Job, Reason, Snapshot
from scheduling.errors import SolverError
from scheduling.lifecycle import State
from scheduling.policies._fractions import steps_per_s
from scheduling.policies._memory import MEMORY
from scheduling.policies._view import View
from scheduling.policies.base import Parameters, Policy

#: A throughput that changed by less than about this much is no reason to compute anew.
_CHANGE = 0.05
#: Rounds end this much early rather than a hair too late.
EDGE_S = 1e-6
#: Debts and surpluses beyond this are not carried from one computation to the next.
FORGOTTEN_S = 4 * 3_600.0

ByType = Mapping[str, float]


@dataclass
class Ledger:
    """What was promised and what was had since the last computation, in seconds."""

    signature: str = ""
    rules: str = ""  # the policy and its parameters
    computed_at: float = -math.inf
    round_end: float = -math.inf
    at: float = 0.0  # what was had is counted up to here
    shares: Mapping[str, ByType] = field(default_factory=dict)
    had: dict[str, ByType] = field(default_factory=dict)
    began: dict[str, float] = field(default_factory=dict)  # when who holds GPUs was given them
    reasons: Mapping[str, Reason] = field(default_factory=dict)
    figures: Mapping[str, float] = field(default_factory=dict)
    policy: Mapping[str, Any] = field(default_factory=dict)  # what the policy wants to find again
    problem: str = ""  # why the last computation failed

    @classmethod
    def load(cls, memory: Mapping[str, Any]) -> Ledger:
        kept = memory.get(MEMORY)
        if not kept or "began" not in kept:
            return cls()
        reasons = {key: Reason(*reason) for key, reason in kept["reasons"].items()}
        own = {"had": dict(kept["had"]), "began": dict(kept["began"]), "reasons": reasons}
        return cls(**{**kept, **own})

    def dump(self) -> dict[str, Any]:
        """Nothing that is dumped is changed afterwards, so rounds may share it."""
        reasons = {key: [r.token, r.text, dict(r.detail)] for key, r in self.reasons.items()}
        return {**self.__dict__, "reasons": reasons}

    def credit(self, job: str, kind: str, seconds: float) -> None:
        had = self.had.get(job, {})
        self.had[job] = {**had, kind: had.get(kind, 0.0) + seconds}


def account(ledger: Ledger, snapshot: Snapshot) -> None:
    """Credit what jobs held since the last look."""
    at, now, began, had = ledger.at, snapshot.now, ledger.began, ledger.had
    for job in snapshot.jobs:  # the innermost loop of long simulations
        gang = job.gang
        if gang is None or not job.gpu_ids or job.state is State.STANDBY:
            continue
        key, since = job.id, job.submitted_at
        since = at if at > since else since
        given = began.get(key, since)
        since = given if given > since else since
        if now > since:
            before = had.get(key)
            mine = had[key] = {} if before is None else {**before}
            mine[gang.type] = mine.get(gang.type, 0.0) + now - since
    ledger.at = now


# When to compute ------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def rules_of(policy: str, parameters: Parameters) -> str:
    return f"{policy} {parameters.model_dump_json()}"


def signature_of(snapshot: Snapshot, field: View, policy: Policy) -> str:
    """Of all that a computation rests on but time: jobs, GPUs, throughputs and the policy itself."""
    total = 0
    for job in snapshot.jobs:
        if _takes_part(job, snapshot.now):
            spans = field.spans(job)
            if spans.row is None:
                spans.row = _row(job, field)
            total += _digest(job.id, job.weight, job.priority, spans.row)
    assert isinstance(policy.parameters, Parameters)
    text = f"{rules_of(policy.name, policy.parameters)} {field.shape} {sorted(snapshot.prices.items())} {total:x}"
    return blake2b(text.encode(), digest_size=16).hexdigest()


def _takes_part(job: Job, now: float) -> bool:
    """Whether fractions are computed for it: who joins later changes the signature."""
    if job.gpu_ids:
        return job.restartable and job.resizable and not job.held
    waits = job.held or job.waits_for or job.state is State.WAITING_FOR_INITIAL_CONTACT
    return not waits and (job.not_before is None or job.not_before <= now)


def _row(job: Job, field: View) -> str:
    speeds = (steps_per_s(job, kind, field.total[kind], field.largest[kind]) for kind in field.types)
    return ",".join(str(round(math.log(v) / _CHANGE)) if v > 0 else "-" for v in speeds)


@lru_cache(maxsize=1 << 16)
def _digest(job: str, weight: float, priority: int, row: str) -> int:
    """Of one job. Their sum stands for all, in whatever order they come."""
    return int.from_bytes(blake2b(f"{job}:{weight:g}:{priority}:{row}".encode(), digest_size=16).digest())


def compute(ledger: Ledger, snapshot: Snapshot, policy: Policy, signature: str) -> None:
    settle(ledger, snapshot)
    ledger.signature = signature
    try:
        answer = policy.allocate(snapshot)
    except SolverError as error:
        if not ledger.shares:
            raise
        # The last valid fractions stay; who came since waits for idle GPUs.
        ledger.figures = {**ledger.figures, "solver_failed": ledger.figures.get("solver_failed", 0.0) + 1.0}
        ledger.problem = str(error)
        return
    ledger.problem = ""
    ledger.shares = _in_turns(answer.shares or {})
    ledger.reasons, ledger.figures, ledger.policy = dict(answer.reasons), dict(answer.figures), dict(answer.memory)


def settle(ledger: Ledger, snapshot: Snapshot) -> None:
    """Count from now on. What live jobs had beyond what they were promised, negative where they are owed, goes over.

    At most FORGOTTEN_S of either: some promises cannot be kept, and what was given away for idle is soon forgiven.
    """
    since = max(0.0, snapshot.now - ledger.computed_at) if ledger.shares else 0.0
    had, shares, carried = ledger.had, ledger.shares, dict[str, ByType]()
    nothing: ByType = {}
    for job in snapshot.jobs:
        key = job.id
        due, beyond = shares.get(key, nothing), {**had.get(key, nothing)}
        for kind, share in due.items():
            beyond[kind] = beyond.get(kind, 0.0) - share * since
        for kind, left in beyond.items():
            if left > FORGOTTEN_S or left < -FORGOTTEN_S:
                beyond[kind] = math.copysign(FORGOTTEN_S, left)
        if beyond:
            carried[key] = beyond
    ledger.had, ledger.computed_at = carried, snapshot.now


def _in_turns(shares: Mapping[tuple[str, ...], ByType]) -> dict[str, ByType]:
    """GPUs are held whole, so the members of a pair take turns in its time."""
    turns: dict[str, ByType] = {key[0]: by_type for key, by_type in shares.items() if len(key) == 1}
    for key, by_type in shares.items():
        for job in key if len(key) > 1 else ():
            own = dict(turns.get(job, ()))
            for kind, share in by_type.items():
                own[kind] = own.get(kind, 0.0) + share / len(key)
            turns[job] = own
    return turns
