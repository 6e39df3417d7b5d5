"""Estimates a job's throughput alone on types where it was not measured, from types where it was."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache, lru_cache

import numpy as np

from scheduling.domain import Curve
from scheduling.throughput.curves import Number, amdahl, catalogue, fit_amdahl
from scheduling.throughput.estimator import LOGARITHMS, Estimator, Floats
from scheduling.throughput.published import published_curves
from scheduling.throughput.reference_tables import family

#: Counts that are compared; others are interpolated.
COUNTS = (1, 2, 4, 8)
#: Curves are estimated up to this many GPUs and constant beyond.
MOST_GPUS = 64
#: An error bar is at most a factor of e each way, which means "anything".
_WIDEST = 1.0
#: Throughputs on one type: count -> steps/s.
Points = Mapping[int, float]


def estimate(known: Mapping[str, Points], types: Mapping[str, int]) -> dict[str, dict[int, Number]]:
    """{type: {count: number}} on each of `types` (with the GPUs there are) for which an estimate is possible.

    `known`: steps/s of the job by type and count, all on one clock: any common factor cancels out.
    """
    fingerprint = tuple((kind, tuple(sorted(_at_counts(points).items()))) for kind, points in sorted(known.items()))
    missing = tuple(sorted((kind, min(gpus, MOST_GPUS)) for kind, gpus in types.items() if not known.get(kind)))
    return {kind: dict(numbers) for kind, numbers in _estimate(fingerprint, missing).items()}


@lru_cache(maxsize=16384)
def _estimate(
    known: tuple[tuple[str, tuple[tuple[int, float], ...]], ...], types: tuple[tuple[str, int], ...]
) -> dict[str, dict[int, Number]]:
    """Cached, because a cluster's jobs repeat the question every round."""
    reference, columns = _reference()
    logs = {(kind, count): math.log(value) for kind, points in known for count, value in points}
    row = np.array([logs.get(column, np.nan) for column in columns])
    if np.isnan(row).all():
        return {}
    completion = reference.complete(row)
    estimates = {}
    for kind, gpus in types:
        own = [n for n, (name, count) in enumerate(columns) if name == kind and count <= max(1, gpus)]
        if own:
            estimates[kind] = _numbers(columns, own, completion.values, completion.error, gpus)
    return estimates


def _at_counts(points: Points) -> Points:
    """The values at COUNTS; a missing one is scaled from the next known count by the job's own scaling."""
    positive = {count: value for count, value in points.items() if value > 0}
    found = {count: value for count, value in positive.items() if count in COUNTS}
    if found or not positive:
        return found
    near = min(COUNTS, key=lambda n: abs(n - min(positive)))
    return {near: amdahl(*fit_amdahl(positive), near)[-1]}


def _numbers(
    columns: list[tuple[str, int]], own: list[int], logs: Floats, errors: Floats, gpus: int
) -> dict[int, Number]:
    points = {columns[n][1]: math.exp(float(logs[n])) for n in own}
    wrong = {columns[n][1]: math.expm1(min(_WIDEST, float(errors[n]))) for n in own}
    fitted = dict(enumerate(amdahl(*fit_amdahl(points), gpus), 1)) | points
    return {
        count: Number(value, "estimated", relative_error=round(wrong[max(c for c in wrong if c <= count)], 3))
        for count, value in sorted(fitted.items())
        if count >= min(wrong)
    }


@cache
def _reference() -> tuple[Estimator, list[tuple[str, int]]]:
    """Catalogue and published rows as one table of logarithms, with its columns."""
    rows = {
        name: {(kind, n): value for kind, curve in curves.items() for n, value in _logarithms(curve).items()}
        for name, curves in (*published_curves().items(), *catalogue().items())
    }
    columns = sorted({column for row in rows.values() for column in row})
    table = np.array([[row.get(column, np.nan) for column in columns] for row in rows.values()])
    return Estimator(table, LOGARITHMS, [family(name) for name in rows]), columns


def _logarithms(curve: Curve) -> dict[int, float]:
    counts = [n for n in COUNTS if n <= len(curve.steps_per_s) and curve.at(n) > 0]
    return {n: math.log(curve.at(n)) for n in counts}
