"""Rounds that realise fractions of time (spec: heterogeneity-policies, "Round mechanism").

At each round's end the combinations are walked by descending priority: what a job was promised on a type over what it
had there since the last computation. In between, whoever runs goes on, and idle GPUs go to those that wait. What has
to be remembered is plain values in the plan's memory.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from scheduling.domain import Allocation, Gang, Job, Reason, Snapshot
from scheduling.errors import SolverError
from scheduling.lifecycle import State
from scheduling.policies._fraction_policy import FractionParameters
from scheduling.policies._fractions import steps_per_s
from scheduling.policies._limits import Rooms
from scheduling.policies._view import View, queue_key, words
from scheduling.policies.base import Policy

MEMORY = "time_sharing"
#: A throughput that changed by less than about this much is no reason to compute anew.
_CHANGE = 0.05
#: Rounds end this much early rather than a hair too late.
_EDGE_S = 1e-6

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
            "reasons": {key: [r.token, r.text, dict(r.detail)] for key, r in self.reasons.items()},
        }


def share_time(snapshot: Snapshot, field: View, policy: Policy) -> Allocation:
    """Whole gangs for the moment, by the policy's fractions; raises what the policy raises."""
    settings = policy.parameters
    assert isinstance(settings, FractionParameters)
    ledger = Ledger.load(snapshot.memory)
    _account(ledger, snapshot)
    new_round = snapshot.now >= ledger.round_end - _EDGE_S
    signature = _signature(snapshot, field, policy)
    # Fractions fit jobs and GPUs as they were; when those change they are computed anew at once, and the round goes on.
    if signature != ledger.signature or (new_round and snapshot.now >= ledger.computed_at + settings.recompute_seconds):
        _compute(ledger, snapshot, policy, signature)
    hands = _walk(ledger, snapshot, field, keep=not new_round)
    if getattr(policy, "fills", True):
        _fill(field, hands)
    if new_round:
        ledger.round_end = snapshot.now + settings.round_seconds
    return Allocation(
        counts=hands.counts,
        reasons={**ledger.reasons, **_reasons(ledger, snapshot, field, hands)},
        memory={MEMORY: ledger.dump()},
        figures={**ledger.figures, "deviation": _deviation(ledger, snapshot)},
        next_wake_at=ledger.round_end if field.taking_part else None,
    )


def _account(ledger: Ledger, snapshot: Snapshot) -> None:
    """Credit what jobs held since the last look."""
    elapsed = max(0.0, snapshot.now - ledger.at)
    for job in snapshot.jobs:
        if job.gang is not None and job.gpu_ids and job.state is not State.STANDBY:
            had = ledger.had[job.id]
            had[job.gang.type] = had.get(job.gang.type, 0.0) + min(elapsed, snapshot.now - job.submitted_at)
    ledger.at = snapshot.now


def _signature(snapshot: Snapshot, field: View, policy: Policy) -> str:
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


def _compute(ledger: Ledger, snapshot: Snapshot, policy: Policy, signature: str) -> None:
    ledger.signature, ledger.computed_at = signature, snapshot.now
    ledger.had = defaultdict(dict)
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
    ledger.reasons, ledger.figures = dict(answer.reasons), dict(answer.figures)


def _in_turns(shares: Mapping[Key, Mapping[str, float]]) -> dict[Key, dict[str, float]]:
    """GPUs are held whole, so the members of a pair take turns in its time."""
    turns: dict[Key, dict[str, float]] = defaultdict(dict)
    for key, by_type in shares.items():
        for job in key:
            for kind, share in by_type.items():
                turns[job,][kind] = turns[job,].get(kind, 0.0) + share / len(key)
    return dict(turns)


def _ranked(ledger: Ledger, snapshot: Snapshot, jobs: Mapping[str, Job]) -> list[tuple[Key, str]]:
    """(combination, type) by descending priority; ties by what is owed over all types and on this one, then by the
    promise, then by the queue."""
    since = max(snapshot.now - ledger.computed_at, 0.0)
    debts = _debts(ledger, since)
    ranked = []
    for key, by_type in ledger.shares.items():
        if not all(job in jobs for job in key):
            continue
        debt = sum(debts[job] for job in key) / len(key)
        for kind, share in by_type.items():
            had = sum(ledger.had.get(job, {}).get(kind, 0.0) for job in key) / len(key)
            priority = math.inf if had <= 0.0 else share * since / had
            owed = share * since - had
            ranked.append((-priority, -debt, -owed, -share, queue_key(jobs[key[0]]), key, kind))
    ranked.sort()
    return [(key, kind) for *_, key, kind in ranked]


def _debts(ledger: Ledger, since: float) -> dict[str, float]:
    """By job: seconds that it was promised on all types since the computation, less those that it had."""
    debts: dict[str, float] = defaultdict(float)
    for key, by_type in ledger.shares.items():
        for job in key:
            debts[job] += sum(by_type.values()) * since
    for job in debts:
        debts[job] -= sum(ledger.had.get(job, {}).values())
    return debts


class _Hands:
    """What is given out in this round, within GPUs and limits."""

    def __init__(self, field: View) -> None:
        self.free, self.rooms = dict(field.free), Rooms(field)
        self.counts: dict[str, Gang] = {}

    def fits(self, job: Job, gang: Gang) -> bool:
        return gang.count <= self.free.get(gang.type, 0) and self.rooms.over(job, gang) is None

    def give(self, job: Job, gang: Gang) -> None:
        self.counts[job.id] = gang
        self.free[gang.type] = self.free.get(gang.type, 0) - gang.count
        self.rooms.book(job, gang)


def _walk(ledger: Ledger, snapshot: Snapshot, field: View, *, keep: bool) -> _Hands:
    """Who gets which type now. With `keep` whoever runs goes on, and only what is idle is given away."""
    hands = _Hands(field)
    jobs = {job.id: job for job in field.taking_part}
    for job in field.running if keep else ():
        if job.gang is not None:
            hands.give(job, job.gang)
    for (key,), kind in _ranked(ledger, snapshot, jobs):
        gang = Gang(kind, jobs[key].min_gpus)
        if key not in hands.counts and hands.fits(jobs[key], gang):
            hands.give(jobs[key], gang)
    return hands


def _fill(field: View, hands: _Hands) -> None:
    """GPUs that the fractions leave idle go to whoever waits, the fastest fit first."""
    for job in sorted((job for job in field.taking_part if job.id not in hands.counts), key=queue_key):
        gangs = [Gang(kind, job.min_gpus) for kind, span in field.spans(job).items() if span.low <= job.min_gpus]
        fits = [gang for gang in gangs if field.steps_per_s(job, gang) > 0 and hands.fits(job, gang)]
        if fits:
            hands.give(job, max(fits, key=lambda gang: (field.steps_per_s(job, gang), gang.type)))


def _reasons(ledger: Ledger, snapshot: Snapshot, field: View, hands: _Hands) -> dict[str, Reason]:
    promised: dict[str, float] = defaultdict(float)
    for key, by_type in ledger.shares.items():
        for member in key:
            promised[member] += sum(by_type.values())
    reasons = dict(field.reasons)
    left_s = max(0.0, ledger.round_end - snapshot.now)
    for job in field.taking_part:
        part = f"{min(1.0, promised[job.id]):.0%} of the time"
        detail = {"share": promised[job.id]}
        if ledger.problem:
            part += f" (the last valid answer, since {ledger.problem})"
        over = hands.rooms.reason(job, [Gang(kind, job.min_gpus) for kind in field.spans(job)])
        if job.id in hands.counts:
            text = f"The policy gives it {part}; in this round it has {words(hands.counts[job.id])}."
            reasons[job.id] = Reason("in_round", text, detail)
        elif over is not None:
            reasons[job.id] = over
        else:
            text = f"The policy gives it {part}; others are ahead in this round, which ends in {left_s:.0f} s."
            reasons[job.id] = Reason("next_round", text, detail)
    return reasons


def _deviation(ledger: Ledger, snapshot: Snapshot) -> float:
    """The largest debt, in seconds."""
    return max(_debts(ledger, max(0.0, snapshot.now - ledger.computed_at)).values(), default=0.0)
