"""What the reference implementation's policies do besides their objective (`compatible: true`).

Spec: heterogeneity-policies, "The reference implementation's own rules". How its engine resolves what an objective
leaves open is in `programs.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from random import Random

import numpy as np

from scheduling.policies.time_shares.programs.groups import NO_PARTNER, Columns, Fractions

#: The order in which its rounds fill types. Types that it does not know are last, by name.
_ORDER = ("v100", "p100", "k80")
_LEAST_S, _MOST_S, _STEP = 100.0, 1e6, 1.05
#: The seed of its generator of orders in its recorded results.
_ORDER_SEED = 5


def in_fixed_order(types: Iterable[str]) -> list[str]:
    return sorted(types, key=lambda kind: (_ORDER.index(kind) if kind in _ORDER else len(_ORDER), kind))


class _Orders:
    """Orders drawn one after the other from one generator, and kept."""

    def __init__(self, kinds: int) -> None:
        self._kinds, self._random, self._drawn = kinds, Random(_ORDER_SEED), list[tuple[int, ...]]()  # noqa: S311

    def of(self, number: int) -> tuple[int, ...]:
        while len(self._drawn) <= number:
            order = list(range(self._kinds))
            self._random.shuffle(order)
            self._drawn.append(tuple(order))
        return self._drawn[number]


_orders = cache(_Orders)


def drawn_order(kinds: int, number: int) -> tuple[int, ...]:
    """The order in which agnostic rounds fill this many types: drawn anew in each round, which `number` counts."""
    return _orders(kinds).of(number)


def blind(found: Fractions) -> Fractions:
    """Agnostic as in the reference: every job is as fast on every type as on the first, and runs on all."""
    first = found.types.index(in_fixed_order(found.types)[0])
    speed = np.where(found.throughput[:, first] > 0, found.throughput[:, first], found.throughput.max(axis=1))
    throughput = np.repeat(speed[:, None], len(found.types), axis=1)
    return everywhere(replace(found, throughput=throughput))


def everywhere(found: Fractions) -> Fractions:
    """With a column for each job on each type, including types on which it cannot run."""
    group, kind = (numbers.ravel().astype(np.int64) for numbers in np.indices(found.throughput.shape))
    columns = Columns(group, np.full(len(group), NO_PARTNER), kind, found.throughput.ravel(), np.zeros(len(group)))
    return replace(found, columns=columns)


def searched(theta: float) -> float:
    """Where a binary search to 5 % for the least feasible time ends, if that time is `theta`."""
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
