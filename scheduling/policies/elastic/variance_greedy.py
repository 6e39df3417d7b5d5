"""Listing 1 of the F-scheduling thesis, incrementally and exactly.

With J jobs that hold GPUs, s their relative throughputs, S = sum s and Q = sum s^2, the population variance times J^2
is V = J Q - S^2. Raising one s by d changes V by

    d (2 J s + (J - 1) d) - 2 d S  =  a - b S,

so every candidate is a line in S, and one grant changes one candidate. Interchangeable candidates (same curves and
limits, same gang) form one row with a heap of jobs. Heaps of gains give the first candidate; if it is blocked or
unfair, the step evaluates all rows at once in floating point. Candidates within the rounding error of the bound, or of
the smallest variance, are compared in integers. Values are integers (UNITS to the step/s or to S = 1), so that ties are
exact; the earlier job in queue order wins them.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

UNITS = 10**9
GangChoice = tuple[int, int]  # (type, count): a gang
#: The variance of numbers in [0, 1] cannot be larger.
LARGEST_VARIANCE = 0.25
NEVER = _NO_LIMIT = 2**40


@dataclass(frozen=True, slots=True)
class JobKind:
    """What makes jobs interchangeable: the worth of n GPUs per type, and the allowed counts.

    `value` is summed and maximised, `share` is S; both in UNITS, non-decreasing, constant beyond their end. high < low:
    the type cannot run the job. `hurdle` is the factor that a change of type must exceed; infinite if none is allowed.
    """

    value: tuple[tuple[int, ...], ...]
    share: tuple[tuple[int, ...], ...]
    low: tuple[int, ...]
    high: tuple[int, ...]
    hurdle: float = 1.0
    groups: tuple[tuple[int, ...], ...] = ()  # per type, the limits that count its GPUs; empty: none
    #: The steps from each gang; equal in every round, so they are memoised.
    steps: dict[GangChoice, Steps] = field(default_factory=dict, init=False, compare=False, repr=False)
    #: Memoised likewise: the smallest gangs of other types that are faster than each.
    faster: dict[GangChoice, tuple[int, ...]] = field(default_factory=dict, init=False, compare=False, repr=False)

    def steps_from(self, seat: GangChoice) -> Steps:
        known = self.steps.get(seat)
        if known is None:
            known = self.steps[seat] = _steps([_step(self, seat, t) for t in range(len(self.low))])
        return known


class Step(NamedTuple):
    """A change from one gang to another. It changes V by rise (2 n S + (n - 1) rise - 2 sum), n being the number of
    jobs."""

    gain: int
    need: int  # free GPUs of its type
    adds: tuple[tuple[int, int], ...]  # (limit, GPUs that it would add to it)
    share: int  # S before
    rise: int  # of S
    target: int


@dataclass(frozen=True, slots=True)
class Steps:
    """Per type: one more GPU of the present type, or the smallest faster gang of another."""

    by_type: tuple[Step | None, ...]
    gains: NDArray[np.int64]  # -1: no step
    #: (3, types): need, S before, its rise; a missing step gets values that are never the least unfair.
    figures: NDArray[np.float64]
    largest_need: int
    largest_add: int


@dataclass(slots=True)
class Row:
    kind: JobKind
    seat: GangChoice
    steps: Steps
    jobs: list[int] = field(default_factory=list)  # heap of positions in queue order


class Greedy:
    """Assign `free` GPUs one candidate at a time; `seats` is the plan so far.

    `others` are the relative throughputs of jobs that hold GPUs and are not candidates: they count in the variance and
    never change. `headroom[g]` is how many more GPUs the jobs under limit g may hold.
    """

    def __init__(
        self,
        kinds: Sequence[JobKind],
        seats: Sequence[GangChoice],
        free: Sequence[int],
        others: Sequence[int],
        bound: float,
        headroom: Sequence[int] = (),
    ) -> None:
        self.headroom = [*headroom, _NO_LIMIT]  # the last entry pads short lists
        self.kinds, self.seats, self.free = list(kinds), list(seats), list(free)
        shares = [at(kind.share[t], n) for kind, (t, n) in zip(kinds, seats, strict=True)] + list(others)
        self.jobs = len(shares)
        self.sum = sum(shares)
        self.spread = self.jobs * sum(share * share for share in shares) - self.sum**2  # V
        self.limit = ceil(Fraction(bound) * (self.jobs * UNITS) ** 2)  # V < limit: fair
        self.never_binds = bound > LARGEST_VARIANCE
        self.passed: list[int] = []  # V after each step
        self._build()

    @property
    def variance(self) -> float:
        return self._as_variance(self.spread)

    @property
    def peak_variance(self) -> float:
        """The largest variance after a step; 0 without steps. A larger bound would have changed nothing."""
        return self._as_variance(max(self.passed, default=0))

    def peak_below(self, variance: float) -> float:
        """The largest variance after a step that is smaller than `variance`."""
        return max((found for found in map(self._as_variance, self.passed) if found < variance), default=0.0)

    def _as_variance(self, spread: int) -> float:
        return float(Fraction(spread, (self.jobs * UNITS) ** 2)) if self.jobs else 0.0

    # Rows ------------------------------------------------------------------------------------------

    def _build(self) -> None:
        types, size = len(self.free), max(1, len(self.seats))
        self.rows: list[Row | None] = [None] * size
        self.spare = list(range(size - 1, -1, -1))
        self.row_of: dict[tuple[int, GangChoice], int] = {}
        self.version = [0] * size  # of a row's entries in `best`
        self.best: list[list[tuple[int, int, int, int]]] = [[] for _ in range(types)]
        self.stale = set[int]()  # rows that are not in the arrays yet
        self.nothing = _steps([None] * types)
        self.gain = np.full((size, types), -1, dtype=np.int64)
        self.figures = np.tile(self.nothing.figures, (size, 1, 1))
        self.need, self.share, self.rise = (self.figures[:, n] for n in range(3))
        self.largest_need = 1
        self.deepest = max((len(keys) for kind in self.kinds for keys in kind.groups), default=0)
        #: Per candidate the limits that apply, and how many GPUs it would add to each.
        self.bounds = np.full((size, types, self.deepest), -1, dtype=np.int64)
        self.adds = np.zeros((size, types, self.deepest), dtype=np.int64)
        self.largest_add = 1
        unique, same = dict[JobKind, JobKind](), dict[int, JobKind]()
        for kind in self.kinds:
            if id(kind) not in same:
                same[id(kind)] = unique.setdefault(kind, kind)
        self.kinds = [same[id(kind)] for kind in self.kinds]
        for job, (kind, seat) in enumerate(zip(self.kinds, self.seats, strict=True)):
            self._row(kind, seat)[1].jobs.append(job)
        for index in self.row_of.values():
            self._offer(index)

    def _row(self, kind: JobKind, seat: GangChoice) -> tuple[int, Row]:
        key = (id(kind), seat)
        index = self.row_of.get(key)
        if index is None:
            index = self.row_of[key] = self.spare.pop()
            steps = kind.steps_from(seat)
            self.rows[index] = Row(kind, seat, steps)
            self.largest_need = max(self.largest_need, steps.largest_need)
            self.largest_add = max(self.largest_add, steps.largest_add)
        row = self.rows[index]
        assert row is not None
        return index, row

    def _join(self, job: int, kind: JobKind, seat: GangChoice) -> None:
        index, row = self._row(kind, seat)
        heapq.heappush(row.jobs, job)
        if row.jobs[0] == job:
            self._offer(index)

    def _leave(self, index: int) -> int:
        row = self.rows[index]
        assert row is not None
        job = heapq.heappop(row.jobs)
        if row.jobs:
            self._offer(index)
        else:
            del self.row_of[id(row.kind), row.seat]
            self.rows[index] = None
            self.version[index] += 1
            self.stale.add(index)
            self.spare.append(index)
        return job

    def _offer(self, index: int) -> None:
        """The row's candidates are those of its first job."""
        row = self.rows[index]
        assert row is not None
        first = row.jobs[0]
        version = self.version[index] = self.version[index] + 1
        self.stale.add(index)
        for step, best in zip(row.steps.by_type, self.best, strict=True):
            if step is not None:
                heapq.heappush(best, (-step.gain, first, index, version))

    def _show(self) -> None:
        """Update the arrays."""
        for index in self.stale:
            row = self.rows[index]
            steps = row.steps if row is not None else self.nothing
            self.gain[index], self.figures[index] = steps.gains, steps.figures
            if self.deepest:
                self._show_limits(index, steps)
        self.stale.clear()

    def _show_limits(self, index: int, steps: Steps) -> None:
        self.bounds[index] = -1
        for t, step in enumerate(steps.by_type):
            for place, (limit, add) in enumerate(step.adds if step else ()):
                self.bounds[index, t, place], self.adds[index, t, place] = limit, add

    def _step(self, index: int, t: int) -> Step:
        row = self.rows[index]
        step = row.steps.by_type[t] if row is not None else None
        assert step is not None
        return step

    # Steps -----------------------------------------------------------------------------------------

    def run(self) -> list[GangChoice]:
        while True:
            choice = self._choose()
            if choice is None:
                return self.seats
            self._grant(*choice)

    def _choose(self) -> tuple[int, int] | None:
        """The best fair candidate as (row, type); without one the least unfair; None: there is no candidate."""
        first = self._first()
        if first is not None or not self.seats:
            return first
        self._show()
        blocked = self._blocked()
        if self.never_binds:
            gain = self.gain if blocked is None else np.where(blocked, -1, self.gain)
            best = int(gain.max(initial=-1))
            return self._in_order(gain == best)[0] if best >= 0 else None
        n, rise = float(self.jobs), self.rise
        change = rise * (2.0 * n * self.share + (n - 1.0) * rise - 2.0 * float(self.sum))
        if blocked is not None:
            change[blocked] = np.inf
        least = float(change.min(initial=np.inf))
        if least == np.inf:
            return None
        slack = self.limit - self.spread
        error = 2.0**-49 * (5.0 * self.jobs * UNITS * UNITS + abs(slack))
        fair = self._best_fair(change, slack, error) if least < slack + error else None
        if fair is not None:
            return fair
        near = self._in_order(change <= least + 2 * error)
        return near[0] if len(near) == 1 else min(near, key=lambda found: self._exact(*found))  # the first of equals

    def _best_fair(self, change: NDArray[np.float64], slack: int, error: float) -> tuple[int, int] | None:
        gain = np.where(change < slack + error, self.gain, -1)
        while (best := int(gain.max(initial=-1))) >= 0:
            for index, t in self._in_order(gain == best):
                if change[index, t] < slack - error or self._exact(index, t) < slack:
                    return index, t
                gain[index, t] = -1
        return None

    def _first(self) -> tuple[int, int] | None:
        """The candidate with the largest gain, unless it is blocked or unfair: no other can be better."""
        found: tuple[int, int, int, int] | None = None  # -gain, first job, type, row
        version = self.version
        for t, best in enumerate(self.best):
            if not self.free[t]:
                continue
            while best and best[0][3] != version[best[0][2]]:
                heapq.heappop(best)
            if best:
                gain, first, index, _ = best[0]
                if found is None or (gain, first, t) < found[:3]:
                    found = (gain, first, t, index)
        if found is None:
            return None
        _, _, t, index = found
        step = self._step(index, t)
        if step.need > self.free[t] or (step.adds and any(self.headroom[limit] < add for limit, add in step.adds)):
            return None
        if self.never_binds or self._change(step) < self.limit - self.spread:
            return index, t
        return None

    def _blocked(self) -> NDArray[np.bool_] | None:
        """Candidates that lack free GPUs or quota headroom; None if no candidate can."""
        blocked: NDArray[np.bool_] | None = None
        if min(self.free, default=_NO_LIMIT) < self.largest_need:
            blocked = self.need > np.array(self.free, dtype=np.float64)
        if min(self.headroom) < self.largest_add:
            headroom = np.array(self.headroom, dtype=np.int64)
            over: NDArray[np.bool_] = np.logical_or.reduce(self.adds > headroom[self.bounds], axis=2)
            blocked = over if blocked is None else np.logical_or(blocked, over)
        return blocked

    def _in_order(self, mask: NDArray[np.bool_]) -> list[tuple[int, int]]:
        found = [divmod(place, mask.shape[1]) for place in mask.ravel().nonzero()[0].tolist()]
        return found if len(found) == 1 else sorted(found, key=lambda found: (self._first_of(found[0]), found[1]))

    def _first_of(self, index: int) -> int:
        row = self.rows[index]
        return row.jobs[0] if row is not None else 0

    def _exact(self, index: int, t: int) -> int:
        return self._change(self._step(index, t))

    def _change(self, step: Step) -> int:
        """The change of V, in integers."""
        return step.rise * (2 * self.jobs * step.share + (self.jobs - 1) * step.rise - 2 * self.sum)

    def _grant(self, index: int, t: int) -> None:
        row = self.rows[index]
        assert row is not None
        step = row.steps.by_type[t]
        assert step is not None
        own, count = row.seat
        seat = (t, step.target)
        self.spread += self._change(step)
        self.sum += step.rise
        self.passed.append(self.spread)
        self.free[own] += count
        self.free[t] -= seat[1]
        if row.kind.groups:
            for group in row.kind.groups[own]:
                self.headroom[group] += count
            for group in row.kind.groups[t]:
                self.headroom[group] -= seat[1]
        job = self._leave(index)
        self.seats[job] = seat
        self._join(job, row.kind, seat)


def _steps(by_type: Sequence[Step | None]) -> Steps:
    figures = [(float(one.need), float(one.share), float(one.rise)) if one else (0.0, np.inf, 1.0) for one in by_type]
    return Steps(
        tuple(by_type),
        np.array([one.gain if one else -1 for one in by_type], dtype=np.int64),
        np.array(figures).T.reshape(3, len(by_type)),
        max((one.need for one in by_type if one), default=0),
        max((add for one in by_type if one for _, add in one.adds), default=0),
    )


def _step(kind: JobKind, seat: GangChoice, t: int) -> Step | None:
    own, count = seat
    value, share = at(kind.value[own], count), at(kind.share[own], count)
    target = count + 1 if t == own else _faster(kind, t, value)
    if target is None or target > kind.high[t]:
        return None
    return Step(
        gain=at(kind.value[t], target) - value,
        need=1 if t == own else target,
        adds=_adds(kind, seat, (t, target)),
        share=share,
        rise=at(kind.share[t], target) - share,
        target=target,
    )


def groups_of(kind: JobKind, t: int) -> tuple[int, ...]:
    return kind.groups[t] if kind.groups else ()


def _adds(kind: JobKind, seat: GangChoice, to: GangChoice) -> tuple[tuple[int, int], ...]:
    """How many GPUs a change of gang adds under each limit that counts the new type."""
    before = groups_of(kind, seat[0])
    return tuple((group, to[1] - (seat[1] if group in before else 0)) for group in groups_of(kind, to[0]))


def at(values: tuple[int, ...], count: int) -> int:
    return values[count] if count < len(values) else values[-1]


def _faster(kind: JobKind, t: int, value: int) -> int | None:
    """The smallest gang of type t worth more than `value` times the hurdle."""
    if kind.hurdle == float("inf") or kind.high[t] < kind.low[t]:
        return None
    values = kind.value[t]
    found = bisect_right(values, int(value * kind.hurdle))
    return max(found, kind.low[t]) if found < len(values) else None
