"""What fractions of time were promised and had: plain values in the plan's memory, from one round to the next."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import numpy as np

from scheduling.domain import Job, Reason, Snapshot
from scheduling.errors import SolverError
from scheduling.lifecycle import State
from scheduling.policies._books import Books
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


@dataclass
class Ledger:
    """What was promised and what was had since the last computation, in seconds."""

    signature: str = ""
    rules: str = ""  # the policy and its parameters
    computed_at: float = -math.inf
    round_end: float = -math.inf
    at: float = 0.0  # what was had is counted up to here
    books: Books = field(default_factory=Books)
    began: dict[str, float] = field(default_factory=dict)  # when who holds GPUs was given them
    reasons: Mapping[str, Reason] = field(default_factory=dict)
    figures: Mapping[str, float] = field(default_factory=dict)
    policy: Mapping[str, Any] = field(default_factory=dict)  # what the policy wants to find again
    problem: str = ""  # why the last computation failed

    @classmethod
    def load(cls, memory: Mapping[str, Any]) -> Ledger:
        kept = memory.get(MEMORY)
        if not kept or "books" not in kept:
            return cls()
        reasons = {key: Reason(*reason) for key, reason in kept["reasons"].items()}
        own = {"books": Books.load(kept["books"]), "began": dict(kept["began"]), "reasons": reasons}
        return cls(**{**kept, **own})

    def dump(self) -> dict[str, Any]:
        """Nothing that is dumped is changed afterwards, so rounds may share it."""
        reasons = {key: [r.token, r.text, dict(r.detail)] for key, r in self.reasons.items()}
        return {**self.__dict__, "books": self.books.dump(), "reasons": reasons}


def account(ledger: Ledger, snapshot: Snapshot) -> None:
    """Credit what jobs held since the last look."""
    jobs, began = snapshot.jobs, ledger.began
    kinds = [job.gang.type if job.gang and job.gpu_ids and job.state is not State.STANDBY else "" for job in jobs]
    books = ledger.books.of([job.id for job in jobs], set(kinds) - {""})
    columns = np.array([books.columns.get(kind, -1) for kind in kinds], dtype=np.int64)
    (rows,) = np.nonzero(columns >= 0)
    since = np.array([began.get(job.id, job.submitted_at) for job in jobs], dtype=float)[rows]
    since = np.minimum(np.maximum(since, ledger.at), snapshot.now)
    ledger.books, ledger.at = books.credited(rows, columns[rows], since, snapshot.now), snapshot.now


# When to compute ------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def rules_of(policy: str, parameters: Parameters) -> str:
    return f"{policy} {parameters.model_dump_json()}"


def signature_of(snapshot: Snapshot, field: View, policy: Policy) -> str:
    """Of all that a computation rests on but time: jobs, GPUs, throughputs and the policy itself."""
    total, known, nobody = 0, field.known.digests.entries, (None, 0)
    for job in snapshot.jobs:
        same, digest = known.get(job.id, nobody)
        if same is job:
            total += digest
        elif _takes_part(job, snapshot.now):
            digest = _digest(job.id, job.weight, job.priority, _row(job, field))
            total += digest if job.not_before is not None else field.known.digests.put(job, digest)
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
    """Its speeds, as far as they matter."""
    spans = field.spans(job)
    if spans.row is None:
        speeds = (steps_per_s(job, kind, field.total[kind], field.largest[kind]) for kind in field.types)
        spans.row = ",".join(str(round(math.log(v) / _CHANGE)) if v > 0 else "-" for v in speeds)
    return spans.row


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
        if not ledger.books.shares.any():
            raise
        # The last valid fractions stay; who came since waits for idle GPUs.
        ledger.figures = {**ledger.figures, "solver_failed": ledger.figures.get("solver_failed", 0.0) + 1.0}
        ledger.problem = str(error)
        return
    ledger.problem = ""
    ledger.books = ledger.books.promising({} if answer.shares is None else answer.shares)
    ledger.reasons, ledger.figures, ledger.policy = dict(answer.reasons), dict(answer.figures), dict(answer.memory)


def settle(ledger: Ledger, snapshot: Snapshot) -> None:
    """Count from now on. What live jobs had beyond what they were promised, negative where they are owed, goes over.

    At most FORGOTTEN_S of either: some promises cannot be kept, and what was given away for idle is soon forgiven.
    """
    since = max(0.0, snapshot.now - ledger.computed_at) if math.isfinite(ledger.computed_at) else 0.0
    ledger.books = ledger.books.of([job.id for job in snapshot.jobs]).settled(since, FORGOTTEN_S)
    ledger.computed_at = snapshot.now
