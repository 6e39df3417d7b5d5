"""What fractions of time were promised and had: plain values in the plan's memory, from one round to the next."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from scheduling.domain import Reason, Snapshot
from scheduling.errors import SolverError
from scheduling.lifecycle import State
from scheduling.policies._fractions import steps_per_s
from scheduling.policies._memory import MEMORY
from scheduling.policies._view import View
from scheduling.policies.base import Policy

#: A throughput that changed by less than about this much is no reason to compute anew.
_CHANGE = 0.05
#: Rounds end this much early rather than a hair too late.
EDGE_S = 1e-6
#: Debts and surpluses beyond this are not carried from one computation to the next.
FORGOTTEN_S = 4 * 3_600.0

Key = tuple[str, ...]


@dataclass
class Ledger:
    """What was promised and what was had since the last computation, in seconds."""

    signature: str = ""
    computed_at: float = -math.inf
    round_end: float = -math.inf
    at: float = 0.0
    shares: dict[Key, dict[str, float]] = field(default_factory=dict)
    had: dict[str, dict[str, float]] = field(default_factory=lambda: defaultdict(dict))
    reasons: dict[str, Reason] = field(default_factory=dict)
    figures: dict[str, float] = field(default_factory=dict)
    policy: dict[str, Any] = field(default_factory=dict)  # what the policy wants to find again
    problem: str = ""  # why the last computation failed

    @classmethod
    def load(cls, memory: Mapping[str, Any]) -> Ledger:
        kept = memory.get(MEMORY)
        if not kept:
            return cls()
        ledger = cls(kept["signature"], kept["computed_at"], kept["round_end"], kept["at"])
        ledger.shares = {tuple(key): dict(by_type) for key, by_type in kept["shares"]}
        ledger.had = defaultdict(dict, {key: dict(by_type) for key, by_type in kept["had"].items()})
        ledger.figures, ledger.problem = dict(kept["figures"]), kept["problem"]
        ledger.policy = dict(kept.get("policy", {}))
        ledger.reasons = {key: Reason(*reason) for key, reason in kept["reasons"].items()}
        return ledger

    def dump(self) -> dict[str, Any]:
        return {
            "signature": self.signature,
            "computed_at": self.computed_at,
            "round_end": self.round_end,
            "at": self.at,
            "shares": [[list(key), dict(by_type)] for key, by_type in self.shares.items()],
            "had": {key: by_type for key, by_type in self.had.items() if by_type},
            "figures": self.figures,
            "problem": self.problem,
            "policy": self.policy,
            "reasons": {key: [r.token, r.text, dict(r.detail)] for key, r in self.reasons.items()},
        }


def account(ledger: Ledger, snapshot: Snapshot) -> None:
    """Credit what jobs held since the last look."""
    elapsed = max(0.0, snapshot.now - ledger.at)
    for job in snapshot.jobs:
        if job.gang is not None and job.gpu_ids and job.state is not State.STANDBY:
            had = ledger.had[job.id]
            had[job.gang.type] = had.get(job.gang.type, 0.0) + min(elapsed, snapshot.now - job.submitted_at)
    ledger.at = snapshot.now


def signature_of(snapshot: Snapshot, field: View, policy: Policy) -> str:
    """Of all that a computation rests on but time: jobs, GPUs, throughputs and the policy itself."""
    text = [policy.name, policy.parameters.model_dump_json(), repr(sorted(field.total.items()))]
    known: dict[Any, str] = {}
    for job in sorted(snapshot.jobs, key=lambda job: job.id):
        if job.held or (job.gpu_ids and not job.restartable):
            continue
        row = known.get((id(job.curves), job.min_gpus, job.types))
        if row is None:
            speeds = (steps_per_s(job, kind, field.total[kind], field.largest[kind]) for kind in field.types)
            row = ",".join(str(round(math.log(v) / _CHANGE)) if v > 0 else "-" for v in speeds)
            known[id(job.curves), job.min_gpus, job.types] = row
        text.append(f"{job.id}:{job.weight:g}:{job.priority}:{row}")
    return blake2b("\n".join(text).encode(), digest_size=16).hexdigest()


def compute(ledger: Ledger, snapshot: Snapshot, policy: Policy, signature: str) -> None:
    ledger.had = _carried(ledger, snapshot)
    ledger.signature, ledger.computed_at = signature, snapshot.now
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


def _carried(ledger: Ledger, snapshot: Snapshot) -> defaultdict[str, dict[str, float]]:
    """What live jobs had beyond what they were promised, negative where they are owed: new fractions begin with it.

    At most FORGOTTEN_S of either: some promises cannot be kept, and what was given away for idle is soon forgiven.
    """
    since = max(0.0, snapshot.now - ledger.computed_at) if ledger.shares else 0.0
    promised: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for key, by_type in ledger.shares.items():
        for member in key:
            for kind, share in by_type.items():
                promised[member][kind] += share * since
    carried: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for job in snapshot.jobs:
        had, due = ledger.had.get(job.id, {}), promised.get(job.id, {})
        for kind in {*had, *due}:
            beyond = had.get(kind, 0.0) - due.get(kind, 0.0)
            carried[job.id][kind] = min(max(beyond, -FORGOTTEN_S), FORGOTTEN_S)
    return carried


def _in_turns(shares: Mapping[Key, Mapping[str, float]]) -> dict[Key, dict[str, float]]:
    """GPUs are held whole, so the members of a pair take turns in its time."""
    turns: dict[Key, dict[str, float]] = defaultdict(dict)
    for key, by_type in shares.items():
        for job in key:
            for kind, share in by_type.items():
                turns[job,][kind] = turns[job,].get(kind, 0.0) + share / len(key)
    return dict(turns)
