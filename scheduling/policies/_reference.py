"""What the reference implementation's policies do beside their objective (`compatible: true`).

Spec: heterogeneity-policies, "The reference implementation's own rules". Its interior-point engine spreads what an
objective leaves open, where ours ends at a corner; its rounds show the difference.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from scheduling.policies._central import centre
from scheduling.policies._fractions import NO_PARTNER, Columns, Fractions
from scheduling.policies._lp import Floats

#: The order in which its rounds fill types. Types that it does not know come last, by name.
_ORDER = ("v100", "p100", "k80")
_LEAST_S, _MOST_S, _STEP = 100.0, 1e6, 1.05


def in_fixed_order(types: Iterable[str]) -> list[str]:
    return sorted(types, key=lambda kind: (_ORDER.index(kind) if kind in _ORDER else len(_ORDER), kind))


def blind(found: Fractions) -> Fractions:
    """Agnostic as the reference has it: every job is as fast on every type as on the first, and runs on all."""
    first = found.types.index(in_fixed_order(found.types)[0])
    speed = np.where(found.throughput[:, first] > 0, found.throughput[:, first], found.throughput.max(axis=1))
    throughput = np.repeat(speed[:, None], len(found.types), axis=1)
    group, kind = np.nonzero(throughput)
    zeros, alone = np.zeros(len(group)), throughput[group, kind]
    columns = Columns(group.astype(np.int64), np.full(len(group), NO_PARTNER), kind.astype(np.int64), alone, zeros)
    return replace(found, throughput=throughput, columns=columns)


def middle(
    found: Fractions, needs: Floats | None = None, costs: Floats | None = None, *, raised: bool = False
) -> Floats:
    """The middle of the valid allocations that meet `needs` (steps/s by job), raised in proportion as far as it goes
    where `raised`, or of the best by `costs`. `found` has a group of its own for every job."""
    width, jobs, entries = len(found.columns), len(found.gang), found.entries
    every = np.arange(width)
    room = np.zeros((len(found.capacity), width + 1))
    room[found.columns.kind, every] = found.gang[found.columns.group]
    turns, speeds = np.zeros((jobs, width + 1)), np.zeros((jobs, width + 1))
    turns[entries.group, entries.column] = entries.mass
    rows, bounds = [-np.eye(width, width + 1), room, turns], [np.zeros(width), found.capacity, np.ones(jobs)]
    worth = np.zeros(width + 1)
    if needs is not None:
        wanted = np.maximum(needs[np.concatenate(found.members)], 1e-300)
        speeds[entries.group, entries.column] = -entries.steps_per_s / wanted[entries.group]
        speeds[:, width] = 1.0 if raised else 0.0
        rows.append(speeds)
        bounds.append(np.full(jobs, 0.0 if raised else -1.0))
        worth[width] = -1.0 if raised else 0.0
    if costs is not None:
        worth[:width] = -costs / max(float(costs.max()), 1e-300)
    used = width + 1 if raised else width
    return np.clip(centre(worth[:used], np.concatenate(rows)[:, :used], np.concatenate(bounds))[:width], 0.0, 1.0)


def searched(theta: float) -> float:
    """Where a binary search to 5 % for the least feasible time ends, if it is `theta`."""
    least, most, found, ceiling = _LEAST_S, _MOST_S, 0.0, _MOST_S
    while not found:
        while _STEP * least < most:
            tried = (least + most) / 2.0
            if tried >= theta:
                most = found = tried
            else:
                least = tried
        least, most, ceiling = ceiling, ceiling * 10.0, ceiling * 10.0
    return found
