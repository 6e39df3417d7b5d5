"""True speeds as opposed to those in a trace: a scheduler learns them by measuring."""

from __future__ import annotations

import random
from math import log1p, sqrt

from scheduling.simulator.inputs.trace import TraceJob


def draw_factors(job: TraceJob, relative_deviation: float, seed: int) -> dict[str, float]:
    """True over stated speed by type: lognormal with mean 1, the same under every policy."""
    sigma = sqrt(log1p(relative_deviation**2))
    rng = random.Random(f"{seed}:noise:{job.id}")  # noqa: S311  # nosec B311
    return {kind: rng.lognormvariate(-sigma * sigma / 2.0, sigma) for kind in sorted(job.curves)}
