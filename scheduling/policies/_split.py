"""From groups back to jobs: columns' seconds as each member's."""

from __future__ import annotations

import numpy as np

from scheduling.policies._lp import Floats


def split_by_demand(masses: Floats, speeds: Floats, demand: Floats) -> Floats:
    """Split columns of `masses` seconds at `speeds` so that member m has at most 1 s and at least demand[m] steps.

    Possible where sum(mass * max(speed - l, 0)) >= sum(max(demand - l, 0)) for every l (Strassen). The most
    demanding members (those of equal demand together) take the contiguous stretch of the sorted columns whose mean is
    their demand, which leaves the condition true for the rest; once a split in proportion to demand fits, it serves all
    that are left.
    """
    order = np.argsort(speeds, kind="stable")
    idle = max(0.0, len(demand) - masses.sum())
    left = np.concatenate(([idle], masses[order]))
    pace = np.concatenate(([0.0], speeds[order]))
    result = np.zeros((len(demand), len(masses)))
    ranked = np.argsort(-demand, kind="stable")
    same = np.append(np.flatnonzero(np.diff(demand[ranked])) + 1, len(ranked))
    sums = np.concatenate((np.cumsum(demand[ranked][::-1])[::-1], [0.0]))
    n = 0
    for end in same.tolist():
        members, wanted, total = ranked[n:end], demand[ranked[n]], sums[n]
        busy = left[1:].sum()
        if total <= 0 or wanted / total * busy <= 1.0 + 1e-12:
            rest = ranked[n:]
            weight = demand[rest] / total if total > 0 else np.full(len(rest), 1.0 / len(rest))
            result[np.ix_(rest, order)] = weight[:, None] * left[1:][None, :]
            break
        taken = _stretch(left, pace, wanted, float(len(members)))
        left = np.maximum(left - taken, 0.0)
        result[np.ix_(members, order)] = taken[1:] / len(members)
        n = end
    return hand_out_rest(result, masses)


def hand_out_rest(split: Floats, masses: Floats) -> Floats:
    """What nobody needed goes to members with time left: the partners in columns of pairs count on it."""
    rest = np.maximum(masses - split.sum(axis=0), 0.0)
    idle = np.maximum(1.0 - split.sum(axis=1), 0.0)
    if rest.sum() <= 0.0 or idle.sum() <= 0.0:
        return split
    return np.asarray(split + idle[:, None] / idle.sum() * (rest * min(1.0, idle.sum() / rest.sum()))[None, :])


def _stretch(left: Floats, pace: Floats, wanted: float, seconds: float) -> Floats:
    """So many seconds of what is left, contiguous in pace, with a mean of `wanted` (or of the least there is above)."""
    ends = np.concatenate(([0.0], np.cumsum(left)))
    steps = np.concatenate(([0.0], np.cumsum(left * pace)))
    length = min(seconds, float(ends[-1]))
    # What a stretch brings grows with where it begins, linearly between the columns' borders.
    begins = np.sort(np.clip(np.concatenate((ends, ends - length)), 0.0, ends[-1] - length))
    brings = np.interp(begins + length, ends, steps) - np.interp(begins, ends, steps)
    wanted *= seconds
    n = int(np.searchsorted(brings, wanted))
    if n == 0 or n == len(begins):
        begin = float(begins[min(n, len(begins) - 1)])
    else:
        part = (wanted - brings[n - 1]) / (brings[n] - brings[n - 1])
        begin = float(begins[n - 1] + part * (begins[n] - begins[n - 1]))
    return np.asarray(np.maximum(np.minimum(ends[1:], begin + length) - np.maximum(ends[:-1], begin), 0.0))
