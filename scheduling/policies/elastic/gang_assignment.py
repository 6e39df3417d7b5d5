"""Assigns gangs to jobs for the largest total worth, by a linear program that splits few jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from scheduling.domain import Gang, Job
from scheduling.solvers.lp import Engine, Floats, LinearProgram

#: Shares above this count as whole; the remaining GPUs go to jobs by worth per GPU.
_WHOLE = 1.0 - 1e-6


@dataclass(frozen=True, slots=True)
class Option:
    job: Job
    gang: Gang
    worth: float


def ranked(
    options: Sequence[Option], free: Mapping[str, int], engine: Engine, time_limit_s: float, *, all_run: bool = False
) -> list[tuple[Option, float]]:
    """Options with their shares in the linear program, whole ones first, then by worth per GPU."""
    if not options:
        return []
    shares = _shares(options, free, engine, time_limit_s, all_run=all_run)
    density = np.array([option.worth / option.gang.count for option in options])
    order = np.lexsort((-density, shares < _WHOLE))
    return [(options[n], float(shares[n])) for n in order]


def _shares(
    options: Sequence[Option], free: Mapping[str, int], engine: Engine, time_limit_s: float, *, all_run: bool
) -> Floats:
    """Few jobs are split, at most one for each type. With `all_run` every job gets a gang."""
    of_job: dict[str, list[int]] = {}
    of_type: dict[str, list[int]] = {}
    for n, option in enumerate(options):
        of_job.setdefault(option.job.id, []).append(n)
        of_type.setdefault(option.gang.type, []).append(n)
    worth = np.array([option.worth for option in options])
    program = LinearProgram(worth / worth.max(), maximise=True, bounds=np.ones(len(options)))
    for kind, columns in of_type.items():
        program.add_row(columns, [float(options[n].gang.count) for n in columns], 0.0, float(free[kind]))
    for columns in of_job.values():
        if len(columns) > 1 or all_run:
            program.add_row(columns, [1.0] * len(columns), 1.0 if all_run else 0.0, 1.0)
    return program.solve(engine, time_limit_s).values
