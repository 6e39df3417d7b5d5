"""Estimates throughputs that were not measured, from measurements of other workloads (docs/throughputs.md).

A row is a workload's fingerprint: a few known columns (types, counts, partners), NaN elsewhere. The rows of a reference
table vote on the rest, weighted by how well they agree with the known columns; ridge regression on the reference rows
adds what no mixture of them explains. A workload that is itself in the table is recognised and gets its own row. There
is no randomness: the same input gives the same answer, on every machine with the same numpy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Floats = np.ndarray[Any, np.dtype[np.float64]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]
#: Fraction of entries that the error bar must cover.
COVERAGE = 0.9
#: Sizes of larger fingerprints that the error bar is calibrated for.
_FINGERPRINTS = (5, 8, 16, 32)
#: Rows that a column needs for its own error bar.
_ENOUGH = 15
#: Number of memoised calibrations.
_MOST_SCALES = 512
_SWEEPS = 5


@dataclass(frozen=True, slots=True)
class Method:
    """How a table is completed, chosen by leaving out each kind in turn (benchmarks/bench_estimator.py).

    bandwidth: root mean square disagreement at which a row's vote begins to fade. ridge: shrinkage per known column.
    aligned: rows are compared up to a common offset, as for logarithms of throughputs. low and high bound the answer.
    """

    bandwidth: float
    ridge: float
    aligned: bool
    low: float = -np.inf
    high: float = np.inf


#: Retained throughput beside a partner, between 0 and 1.
RETAINED = Method(bandwidth=0.03, ridge=0.01, aligned=False, low=0.0, high=1.0)
#: Natural logarithms of throughputs alone.
LOGARITHMS = Method(bandwidth=0.1, ridge=0.03, aligned=True)


@dataclass(frozen=True, slots=True)
class Completion:
    """A row without gaps. `error` is half the width of an interval that covers COVERAGE, 0 for known entries.

    `weights` are the votes of the reference rows, `closest` the index of the strongest.
    """

    values: Floats
    error: Floats
    weights: Floats
    closest: int


class Estimator:
    """Completes rows against one reference table (rows: workloads; NaN: not measured)."""

    def __init__(self, table: Floats, method: Method, families: Sequence[object] = ()) -> None:
        """`families`: rows of one family are left out together when the error bar is calibrated."""
        self.method = method
        self.table = fill(table, method) if np.isnan(table).any() else np.array(table, dtype=float)
        self._families = list(families) or list(range(len(table)))
        self._known = ~np.isnan(table)
        self._scales: dict[tuple[int, ...], tuple[Floats, float]] = {}

    def complete(self, row: Floats) -> Completion:
        """The row with its gaps filled; known entries are unchanged."""
        known = ~np.isnan(row)
        values, weights, doubt = _complete(self.table, row, known, self.method, self._known)
        factor, least = self._scale(known)
        error = np.where(known, 0.0, factor * np.maximum(doubt, least))
        return Completion(values, error, weights, int(np.argmax(weights)))

    def _scale(self, known: Mask) -> tuple[Floats, float]:
        """(factor by column, least): the error is `factor` times the doubt, which is at least `least`.

        Small fingerprints are calibrated individually, because it matters which columns are known; larger ones by size.
        """
        (columns,) = np.nonzero(known)
        size = max((n for n in _FINGERPRINTS if n <= len(columns)), default=0)
        key = tuple(map(int, columns)) if len(columns) < _FINGERPRINTS[0] else (-size,)
        if key not in self._scales:
            if len(self._scales) >= _MOST_SCALES:
                self._scales.clear()
            self._scales[key] = self._calibrate(known if size == 0 else None, size)
        return self._scales[key]

    def _calibrate(self, columns: Mask | None, size: int) -> tuple[Floats, float]:
        """The factors that cover COVERAGE of the measured entries of rows whose family is excluded from the table."""
        width = self.table.shape[1]
        errors, doubts = [], []
        generator = np.random.default_rng(0)
        for number, row in enumerate(self.table):
            others = np.array([family != self._families[number] for family in self._families])
            measured = self._known[number]
            known = _draw(measured, size, generator) if columns is None else columns & measured
            if others.sum() < 2 or (columns is not None and (columns & ~measured).any()):
                continue
            values, _, doubt = _complete(self.table[others], row, known, self.method, self._known[others])
            hidden = measured & ~known
            errors.append(np.where(hidden, np.abs(values - row), np.nan))
            doubts.append(doubt)
        if not errors or np.isnan(errors).all():
            return np.full(width, 3.0), 0.3
        error, doubt = np.array(errors), np.array(doubts)
        least = max(float(np.median(doubt)) / 2, 1e-3)
        return _factors(error / np.maximum(doubt, least)), least


def _draw(measured: Mask, size: int, generator: np.random.Generator) -> Mask:
    """This many of the measured columns, but not all."""
    (columns,) = np.nonzero(measured)
    drawn = np.zeros(len(measured), dtype=bool)
    drawn[generator.choice(columns, min(size, max(0, len(columns) - 1)), replace=False)] = True
    return drawn


def _factors(ratios: Floats) -> Floats:
    """The quantile of each column's ratios (NaN: none); of all columns together if a column has few."""
    overall = float(np.nanquantile(ratios, COVERAGE))
    count = (~np.isnan(ratios)).sum(axis=0)
    factors = np.full(ratios.shape[1], overall)
    for column in np.nonzero(count >= _ENOUGH)[0]:
        # one of n + 1: the new row is as likely as any other to be the worst
        level = min(1.0, COVERAGE * (count[column] + 1) / count[column])
        # a column without errors so far may still err: no error bar is zero
        factors[column] = max(float(np.nanquantile(ratios[:, column], level)), overall / 10, 1e-6)
    return factors


def fill(table: Floats, method: Method) -> Floats:
    """The table without gaps: the mean of completing its rows and of completing its columns."""
    return np.asarray((_fill_rows(table, method) + _fill_rows(table.T, method).T) / 2)


def _fill_rows(table: Floats, method: Method) -> Floats:
    """First row effects plus column effects, then each row against all others, a few times over."""
    known = ~np.isnan(table)
    filled = np.where(known, table, np.clip(_additive(table), method.low, method.high))
    for _ in range(_SWEEPS):
        before = filled.copy()
        for number in np.nonzero(~known.all(axis=1))[0]:
            others = np.arange(len(table)) != number
            if known[number].any() and others.any():
                filled[number] = _complete(before[others], table[number], known[number], method, known[others])[0]
    return filled


def _additive(table: Floats) -> Floats:
    """Row effect plus column effect, least squares over the known entries; unknown columns get the mean."""
    known = ~np.isnan(table)
    rows, columns = np.zeros(len(table)), np.zeros(table.shape[1])
    for _ in range(20):
        columns = _mean(table - rows[:, None], known, axis=0)
        rows = _mean(table - columns[None, :], known, axis=1)
    return np.asarray(rows[:, None] + columns[None, :])


def _mean(values: Floats, known: Mask, axis: int) -> Floats:
    count = known.sum(axis=axis)
    total = np.where(known, values, 0.0).sum(axis=axis)
    overall = total.sum() / max(1, count.sum())
    return np.asarray(np.where(count > 0, total / np.maximum(count, 1), overall))


def _complete(table: Floats, row: Floats, known: Mask, method: Method, measured: Mask) -> tuple[Floats, Floats, Floats]:
    """(values, votes of the rows, doubt); `measured` tells the table's own gaps, which were filled, from the rest.

    The doubt: how far the rows with votes are from each other, and from the row; a vote based on a filled gap is as
    doubtful as its column is wide.
    """
    if not known.any():
        weights = np.full(len(table), 1.0 / len(table))
        values = table.mean(axis=0)
        return values, weights, np.asarray(table.std(axis=0))
    given = row[known]
    if method.aligned:
        table = table - table[:, known].mean(axis=1, keepdims=True) + given.mean()
    apart = np.mean((table[:, known] - given) ** 2, axis=1)
    nearest = float(apart.min())
    # the farther away the nearest row is, the less its lead over the next ones means
    width = method.bandwidth**2 + method.bandwidth * nearest**0.5
    weights = np.exp(-(apart - nearest) / width)
    weights /= weights.sum()
    voted = weights @ table
    values = voted + _correction(table, given - voted[known], known, method)
    doubt = np.sqrt(weights @ (table - voted) ** 2 + nearest + weights @ ~measured * table.var(axis=0))
    values = np.clip(values, method.low, method.high)
    # whether jobs fit together is a majority vote, not a mean
    if method.low == 0.0:
        values[weights @ (table <= 0.0) > 0.5] = 0.0
    values[known] = given
    return values, weights, doubt


def _correction(table: Floats, left: Floats, known: Mask, method: Method) -> Floats:
    """What ridge regression on the reference rows adds to the votes."""
    shapes = table - table.mean(axis=0)
    seen = shapes[:, known]
    gram = seen @ seen.T + method.ridge * len(left) * np.eye(len(table))
    return np.asarray(np.linalg.solve(gram, seen @ left) @ shapes)
