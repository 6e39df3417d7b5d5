"""Time shares promised and received: plain values in the plan's memory, carried from one round to the next."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import numpy as np

from scheduling.capacity.cluster_view import RoundView
from scheduling.domain import Reason, Snapshot
from scheduling.engine.time_sharing.job_columns import JobColumns
from scheduling.errors import SolverError
from scheduling.policies.base import Parameters, Policy
from scheduling.policies.time_shares.programs.deficits import DeficitTable
from scheduling.policies.time_shares.programs.last_answer import MEMORY
from scheduling.solvers.lp import Floats

#: Rounds end this much early rather than slightly too late.
EDGE_S = 1e-6
#: Debts and surpluses beyond this are not carried over to the next computation.
FORGOTTEN_S = 4 * 3_600.0


@dataclass
class TimeShareState:
    """Time promised and received since the last computation, in seconds."""

    signature: str = ""
    rules: str = ""  # the policy and its parameters
    computed_at: float = -math.inf
    round_end: float = -math.inf
    at: float = 0.0  # received time is counted up to here
    books: DeficitTable = field(default_factory=DeficitTable)
    began: dict[str, float] = field(default_factory=dict)  # when jobs got the GPUs they hold
    reasons: Mapping[str, Reason] = field(default_factory=dict)
    figures: Mapping[str, float] = field(default_factory=dict)
    policy: Mapping[str, Any] = field(default_factory=dict)  # what the policy stores for its next call
    answered: bool = False  # the last valid computation promised time to some job
    problem: str = ""  # why the last computation failed

    @classmethod
    def load(cls, memory: Mapping[str, Any]) -> TimeShareState:
        kept = memory.get(MEMORY)
        if not kept or "books" not in kept:  # of an earlier release: everything is recomputed, leases continue
            return cls(began=dict(kept.get("began", {}) if kept else {}))
        reasons = {key: Reason(*reason) for key, reason in kept["reasons"].items()}
        own = {"books": DeficitTable.load(kept["books"]), "began": dict(kept["began"]), "reasons": reasons}
        return cls(**{**kept, **own})

    def start_times(self, job_columns: JobColumns) -> Floats:
        """By index in the columns: when the job got its GPUs; -inf: it has none, or the time is unknown."""
        began = self.began
        return np.array([began.get(job, -math.inf) for job in job_columns.ids], dtype=float)

    def dump(self) -> dict[str, Any]:
        """Dumped values are never changed afterwards, so rounds may share them."""
        reasons = {key: [r.token, r.text, dict(r.detail)] for key, r in self.reasons.items()}
        return {**self.__dict__, "books": self.books.dump(), "reasons": reasons}


def charge_elapsed(ledger: TimeShareState, job_columns: JobColumns, now: float) -> None:
    """Credit the time that jobs held GPUs since the last call."""
    kinds = job_columns.kinds
    (rows,) = np.nonzero(kinds >= 0)
    books = ledger.books.of(job_columns.ids, {job_columns.types[kind] for kind in set(kinds[rows].tolist())})
    columns = np.array([books.columns.get(kind, -1) for kind in job_columns.types], dtype=np.int64)[kinds[rows]]
    given = ledger.start_times(job_columns)[rows]
    since = np.where(np.isinf(given), job_columns.submitted_at[rows], given)
    since = np.minimum(np.maximum(since, ledger.at), now)
    ledger.books, ledger.at = books.credited(rows, columns, since, now), now


# When to compute ------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def rules_of(policy: str, parameters: Parameters) -> str:
    return f"{policy} {parameters.model_dump_json()}"


def signature_of(snapshot: Snapshot, job_columns: JobColumns, field: RoundView, policy: Policy) -> str:
    """Signature of everything that a computation depends on except time: jobs, GPUs, throughputs and the policy
    itself."""
    assert isinstance(policy.parameters, Parameters)
    rules, prices = rules_of(policy.name, policy.parameters), sorted(snapshot.prices.items())
    text = f"{rules} {field.shape} {prices} {job_columns.digest}"
    if snapshot.others.gpus:
        text += f" {sorted(snapshot.others.gpus)}"
    return blake2b(text.encode(), digest_size=16).hexdigest()


def compute(ledger: TimeShareState, snapshot: Snapshot, policy: Policy, signature: str) -> None:
    forget_ended(ledger, snapshot)
    ledger.signature = signature
    try:
        answer = policy.allocate(snapshot)
    except SolverError as error:
        if not ledger.answered:
            raise
        # The last valid time shares stay; newer jobs wait for idle GPUs.
        ledger.figures = {**ledger.figures, "solver_failed": ledger.figures.get("solver_failed", 0.0) + 1.0}
        ledger.problem = str(error)
        return
    ledger.problem = ""
    ledger.books = ledger.books.promising({} if answer.shares is None else answer.shares)
    ledger.answered = bool(ledger.books.shares.any())
    ledger.reasons, ledger.figures, ledger.policy = dict(answer.reasons), dict(answer.figures), dict(answer.memory)


def forget_ended(ledger: TimeShareState, snapshot: Snapshot) -> None:
    """Start counting anew. The difference between time received and promised is carried over for live jobs; negative if
    they are owed.

    At most FORGOTTEN_S of either: some promises cannot be kept, and idle time given away is soon forgiven.
    """
    since = max(0.0, snapshot.now - ledger.computed_at) if math.isfinite(ledger.computed_at) else 0.0
    ledger.books = ledger.books.of([job.id for job in snapshot.jobs]).settled(since, FORGOTTEN_S)
    ledger.computed_at = snapshot.now
