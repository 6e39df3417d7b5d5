"""From groups back to jobs: the columns' seconds of each member."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import accumulate, pairwise
from operator import mul

import numpy as np

from scheduling.solvers.lp import Floats


def split_by_demand(masses: Floats, speeds: Floats, demand: Floats) -> Floats:
    """Split columns of `masses` seconds at `speeds` so that member m has at most 1 s and at least demand[m] steps.

    Possible if sum(mass * max(speed - l, 0)) >= sum(max(demand - l, 0)) for every l (Strassen). The most demanding
    members (those of equal demand together) take the contiguous stretch of the sorted columns whose mean is their
    demand; the condition remains true for the rest. Once a split in proportion to demand fits, it serves all remaining
    members.
    """
    pace, mass, needs = speeds.tolist(), masses.tolist(), demand.tolist()
    order = sorted((column for column, seconds in enumerate(mass) if seconds), key=pace.__getitem__)
    left = [max(0.0, len(needs) - sum(mass)), *(mass[column] for column in order)]  # idle time has no speed
    pace = [0.0, *(pace[column] for column in order)]
    ranked = sorted(range(len(needs)), key=lambda member: -needs[member])
    total = list(accumulate(needs[member] for member in reversed(ranked)))
    rows: list[list[float]] = [[]] * len(needs)
    n = 0
    while n < len(ranked):
        wanted, needed = needs[ranked[n]], total[-1 - n]
        if needed <= 0 or wanted / needed * sum(left[1:]) <= 1.0 + 1e-12:
            for member in ranked[n:]:
                weight = needs[member] / needed if needed > 0 else 1.0 / (len(ranked) - n)
                rows[member] = [weight * seconds for seconds in left[1:]]
            break
        end = n + 1
        while end < len(ranked) and needs[ranked[end]] == wanted:
            end += 1
        taken = _stretch(left, pace, wanted, float(end - n))
        left = [max(has - gone, 0.0) for has, gone in zip(left, taken, strict=True)]
        part = [seconds / (end - n) for seconds in taken[1:]]
        for member in ranked[n:end]:
            rows[member] = part
        n = end
    result = np.zeros((len(needs), len(mass)))
    result[:, order] = rows
    return assign_rest(result, masses)


def assign_rest(split: Floats, masses: Floats) -> Floats:
    """Time that no member needs goes to members with time left: the partners in columns of pairs depend on it."""
    rest = np.maximum(masses - split.sum(axis=0), 0.0)
    idle = np.maximum(1.0 - split.sum(axis=1), 0.0)
    if rest.sum() <= 0.0 or idle.sum() <= 0.0:
        return split
    return np.asarray(split + idle[:, None] / idle.sum() * (rest * min(1.0, idle.sum() / rest.sum()))[None, :])


def _stretch(left: list[float], pace: list[float], wanted: float, seconds: float) -> list[float]:
    """This many seconds of the rest, contiguous in speed, with a mean of `wanted` (or the smallest mean above it)."""
    ends = list(accumulate(left, initial=0.0))
    steps = list(accumulate(map(mul, left, pace), initial=0.0))
    length = min(seconds, ends[-1])
    # The steps of a stretch grow with where it begins, linearly between the columns' borders.
    last = ends[-1] - length
    begins = sorted({min(max(at, 0.0), last) for border in ends for at in (border, border - length)})
    brings = [_between(begin + length, ends, steps) - _between(begin, ends, steps) for begin in begins]
    wanted *= seconds
    n = bisect_left(brings, wanted)
    if n in (0, len(begins)):
        begin = begins[min(n, len(begins) - 1)]
    else:
        part = (wanted - brings[n - 1]) / (brings[n] - brings[n - 1])
        begin = begins[n - 1] + part * (begins[n] - begins[n - 1])
    return [max(min(end, begin + length) - max(start, begin), 0.0) for start, end in pairwise(ends)]


def _between(at: float, ends: list[float], steps: list[float]) -> float:
    """The steps up to an index, linear between the borders."""
    n = bisect_right(ends, at) - 1
    if n >= len(ends) - 1:
        return steps[-1]
    return (steps[n + 1] - steps[n]) / (ends[n + 1] - ends[n]) * (at - ends[n]) + steps[n]
