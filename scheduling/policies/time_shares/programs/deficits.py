"""The deficit table: time promised to each job on each accelerator type and time received, as arrays of jobs by types.

A round reads all live jobs several times, so their figures are columns; in the plan's memory they are text.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from scheduling.capacity.memo import Latest
from scheduling.policies.time_shares.programs.ungrouping.ungroup import ByNumber, Shares
from scheduling.solvers.lp import Floats, Ints

_DOUBLE = np.dtype("<f8")


@dataclass(frozen=True, eq=False)
class DeficitTable:
    """[job, type]: `shares` are fractions of time, `had` seconds. Immutable: changes make a new table."""

    jobs: tuple[str, ...] = ()
    types: tuple[str, ...] = ()  # in name order
    shares: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    had: Floats = field(default_factory=lambda: np.zeros((0, 0)))

    @classmethod
    def load(cls, kept: dict[str, Any]) -> DeficitTable:
        """The inverse of `dump`."""
        latest, books = _latest.value
        if latest is not kept:
            wide = len(kept["jobs"]), len(kept["types"])
            figures = [np.frombuffer(b64decode(kept[name]), dtype=_DOUBLE).reshape(wide) for name in ("shares", "had")]
            books = cls(tuple(kept["jobs"]), tuple(kept["types"]), *figures)
            _latest.value = kept, books
        return books

    def dump(self) -> dict[str, Any]:
        """JSON values, made once, so that a table that is loaded again is the same object. Thousands of figures are
        base64 of doubles: exact, and in a third of the time of numbers."""
        kept, latest = _latest.value
        if latest is not self:
            arrays = {"shares": self.shares, "had": self.had}
            figures = {name: b64encode(array.astype(_DOUBLE).tobytes()).decode() for name, array in arrays.items()}
            kept = {"jobs": list(self.jobs), "types": list(self.types), **figures}
            _latest.value = kept, self
        return kept

    @cached_property
    def rows(self) -> Mapping[str, int]:
        return dict(zip(self.jobs, range(len(self.jobs)), strict=True))

    @cached_property
    def columns(self) -> Mapping[str, int]:
        return {kind: n for n, kind in enumerate(self.types)}

    def rows_of(self, jobs: Sequence[str]) -> Ints:
        """-1: not in the table."""
        rows = self.rows
        return np.array([rows.get(job, -1) for job in jobs], dtype=np.int64)

    def share(self, job: str, kind: str) -> float:
        row, column = self.rows.get(job), self.columns.get(kind)
        return 0.0 if row is None or column is None else float(self.shares[row, column])

    def promised(self, job: str) -> float:
        """Summed over types."""
        row = self.rows.get(job)
        return 0.0 if row is None else sum(self.shares[row].tolist())

    def by_job(self) -> dict[str, dict[str, float]]:
        """{job: {type: share}} of jobs with a share."""
        return {job: dict(by_type) for (job,), by_type in ByNumber(self.jobs, self.types, self.shares).items()}

    def debts(self, rows: Ints, since_s: float) -> Floats:
        """Seconds promised to the jobs on all types in this time, minus those received."""
        return _sum(self.shares[rows]) * since_s - _sum(self.had[rows])

    def of(self, jobs: Sequence[str], types: Collection[str] = ()) -> DeficitTable:
        """The table of these jobs in this order, new ones with nothing, and of these types besides the present ones."""
        names = tuple(jobs)
        every = self.types if self.columns.keys() >= set(types) else tuple(sorted({*self.types, *types}))
        if every == self.types and names == self.jobs:
            return self
        rows, columns = self.rows_of(names), [every.index(kind) for kind in self.types]
        (there,) = np.nonzero(rows >= 0)
        figures: Floats = np.zeros((2, len(names), len(every)))
        if len(there):
            figures[:, there[:, None], columns] = np.stack((self.shares, self.had))[:, rows[there]]
        return DeficitTable(names, every, *figures)

    def credited(self, rows: Ints, columns: Ints, since: Floats, now: float) -> DeficitTable:
        """With this time added on these types to the jobs of these rows, once each."""
        had = self.had.copy()
        had[rows, columns] = had[rows, columns] + now - since
        return self._with(had=had)

    def settled(self, since_s: float, most_s: float) -> DeficitTable:
        """With the surplus of received over promised time in this period, limited to `most_s` either way."""
        beyond = np.clip(self.had - self.shares * since_s, -most_s, most_s)
        (used,) = np.nonzero(self.shares.any(axis=0) | beyond.any(axis=0))
        if len(used) == len(self.types):
            return self._with(had=beyond)
        types = tuple(self.types[column] for column in used.tolist())  # pools change
        return DeficitTable(self.jobs, types, self.shares[:, used], beyond[:, used])

    def forgetting(self) -> DeficitTable:
        """With no time received."""
        return self._with(had=np.zeros_like(self.had))

    def promising(self, shares: Shares) -> DeficitTable:
        """With new promises."""
        found = shares if isinstance(shares, ByNumber) else _in_turns(shares)
        books = self.of((*self.jobs, *(job for job in found.jobs if job not in self.rows)), found.types)
        promised = np.zeros_like(books.shares)
        columns = [books.columns[kind] for kind in found.types]
        promised[books.rows_of(found.jobs)[:, None], columns] = found.parts
        return books._with(shares=promised)

    def _with(self, *, shares: Floats | None = None, had: Floats | None = None) -> DeficitTable:
        """The same jobs with other figures."""
        books = DeficitTable(
            self.jobs, self.types, self.shares if shares is None else shares, self.had if had is None else had
        )
        if "rows" in self.__dict__:
            books.__dict__["rows"] = self.rows
        return books


#: The newest table dumped or loaded: mostly the next round's.
_latest: Latest[tuple[dict[str, Any], DeficitTable]] = Latest(({}, DeficitTable()))


def _in_turns(shares: Shares) -> ByNumber:
    """GPUs are held whole, so the members of a pair take turns."""
    jobs = list(dict.fromkeys(job for key in shares for job in key))
    types = sorted({kind for by_type in shares.values() for kind in by_type})
    number, column = ({name: n for n, name in enumerate(names)} for names in (jobs, types))
    parts = np.zeros((len(jobs), len(types)))
    for key, by_type in shares.items():
        for job in key:
            for kind, share in by_type.items():
                parts[number[job], column[kind]] += share / len(key)
    return ByNumber(jobs, types, parts)


def _sum(figures: Floats) -> Floats:
    """Summed over types in order, so that equal values stay equal however many types there are."""
    if not figures.shape[1]:
        return np.zeros(len(figures))
    found: Floats = figures[:, 0].copy()
    for column in range(1, figures.shape[1]):
        found += figures[:, column]
    return found
