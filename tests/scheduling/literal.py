"""Listing 1 of the thesis, word for word, in O(N J^2): what the fast greedy must equal."""

from __future__ import annotations

from fractions import Fraction

from scheduling.policies.elastic.variance_greedy import UNITS, JobKind, at, groups_of


def scheduler(
    kinds: list[JobKind], seats: list[int], free: int, others: list[int], v_bound: float, headroom: list[int]
) -> list[int]:
    """GPU counts per job on one type, from the minimums `seats`; jobs are in queue order.

    A job that a limit leaves no room proposes nothing (ours).
    """
    headroom = list(headroom)
    plan = list(seats)
    while free > 0:
        candidates = []
        for job, kind in enumerate(kinds):
            if plan[job] < kind.high[0] and all(headroom[group] > 0 for group in groups_of(kind, 0)):
                candidate = plan.copy()
                candidate[job] += 1
                candidates.append(candidate)
        if not candidates:
            break
        before, plan = plan, pick_plan(candidates, kinds, others, Fraction(v_bound))
        grown = next(kind for kind, old, new in zip(kinds, before, plan, strict=True) if old != new)
        for group in groups_of(grown, 0):
            headroom[group] -= 1
        free -= 1
    return plan


def pick_plan(candidates: list[list[int]], kinds: list[JobKind], others: list[int], v_bound: Fraction) -> list[int]:
    fair: list[list[int]] = []
    unfair: list[list[int]] = []
    for candidate in candidates:
        (fair if variance(candidate, kinds, others) < v_bound else unfair).append(candidate)
    if fair:
        return sorted(fair, key=lambda plan: throughput_sum(plan, kinds), reverse=True)[0]
    return sorted(unfair, key=lambda plan: variance(plan, kinds, others))[0]


def variance(plan: list[int], kinds: list[JobKind], others: list[int]) -> Fraction:
    shares = [Fraction(at(kind.share[0], n), UNITS) for kind, n in zip(kinds, plan, strict=True)]
    shares += [Fraction(share, UNITS) for share in others]
    mean = sum(shares, Fraction(0)) / len(shares)
    return sum(((share - mean) ** 2 for share in shares), Fraction(0)) / len(shares)


def throughput_sum(plan: list[int], kinds: list[JobKind]) -> int:
    return sum(at(kind.value[0], n) for kind, n in zip(kinds, plan, strict=True))
