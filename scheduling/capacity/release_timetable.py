"""When which GPUs are released, as far as it can be predicted."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable
from itertools import accumulate

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
#: Times in seconds since 1970 are only this precise.
_ROUNDING_S = 1e-6


class Timetable:
    """Free GPUs of one type as a step function of time: `free[n]` from `times[n]` to `times[n + 1]`."""

    def __init__(self, now: float, free: int, releases: Iterable[tuple[float, int]] = ()) -> None:
        at: dict[float, int] = {}
        for moment, count in releases:
            at[max(moment, now)] = at.get(max(moment, now), 0) + count
        moments = sorted(at.keys() - {now})
        self.times: Floats = np.array([now, *moments])
        self.free: Ints = free + np.cumsum([at.get(now, 0), *(at[moment] for moment in moments)], dtype=np.int64)
        self._enough: dict[int, tuple[list[float], list[float]]] = {}  # until GPUs are taken

    def earliest(self, count: int, duration_s: float) -> float:
        """When so many GPUs are free together for so long; infinite if never."""
        begins, longest = self._enough[count] if count in self._enough else self._stretches(count)
        place = bisect_left(longest, duration_s - _ROUNDING_S)
        return begins[place] if place < len(begins) else math.inf

    def _stretches(self, count: int) -> tuple[list[float], list[float]]:
        """Start times of stretches with so many free GPUs, and the longest stretch so far: what fits into none of them
        fits nowhere."""
        enough = self.free >= count
        turns = np.flatnonzero(enough[1:] != enough[:-1]) + 1
        at: list[float] = [float(self.times[0]), *self.times[turns].tolist(), math.inf]
        first = 0 if enough[0] else 1
        begins, ends = at[first:-1:2], at[first + 1 :: 2]
        longest = list(accumulate((end - begin for begin, end in zip(begins, ends, strict=True)), max))
        found = self._enough[count] = begins, longest
        return found

    def take(self, count: int, start: float, duration_s: float) -> None:
        first, last = self._cut(start), self._cut(start + duration_s)
        self.free[first:last] -= count
        self._enough.clear()

    def _cut(self, at: float) -> int:
        """The index of the step that begins at this time; it is created if missing."""
        if math.isinf(at):
            return len(self.times)
        place = int(np.searchsorted(self.times, at))
        if place == len(self.times) or self.times[place] != at:
            self.times = np.insert(self.times, place, at)
            self.free = np.insert(self.free, place, self.free[place - 1])
        return place
