"""Synthetic traces with the distributions of the heterogeneity paper (OSDI 2020, section 7.1).

Arrivals are Poisson (or all at once). A job's model is drawn evenly from the throughput table. Its duration on the
reference type is 10^u minutes with u uniform in [1.5, 3] for 80 % of jobs and in [3, 4] for the rest; its steps are
what it makes there meanwhile. Its gang is 1, 2, 4 or 8 GPUs with the Philly shares of 70, 10, 15 and 5 % if `multi_gpu`
is set, else 1.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from scheduling.domain import Curve
from scheduling.errors import InvalidInput
from scheduling.simulator.inputs.trace import Throughputs

SCALES: tuple[tuple[int, float], ...] = ((1, 0.7), (2, 0.1), (4, 0.15), (8, 0.05))


@dataclass(frozen=True, slots=True)
class Recipe:
    jobs: int
    jobs_per_hour: float | None = None  # None: all arrive at once
    multi_gpu: bool = False
    reference_type: str = "v100"
    seed: int = 0


def generate(recipe: Recipe, throughputs: Throughputs) -> list[dict[str, Any]]:
    """Jobs in Evenkeel's trace format. Same recipe, same jobs."""
    rng = random.Random(recipe.seed)  # noqa: S311  # nosec B311
    models = sorted(name for name, curves in throughputs.items() if _runs(curves, recipe.reference_type, 1))
    if not models:
        raise InvalidInput(f"no model of the throughput file runs on {recipe.reference_type!r}")
    jobs, now = [], 0.0
    for number in range(recipe.jobs):
        if recipe.jobs_per_hour is not None and number:
            now += rng.expovariate(recipe.jobs_per_hour / 3600.0)
        model = rng.choice(models)
        gang = _gang(rng, throughputs[model], recipe) if recipe.multi_gpu else 1
        low, high = (1.5, 3.0) if rng.random() < 0.8 else (3.0, 4.0)
        duration_s = 60.0 * 10.0 ** rng.uniform(low, high)
        speed = throughputs[model][recipe.reference_type].at(gang)
        jobs.append(_entry(number, now, model, gang, max(1.0, round(duration_s * speed)), throughputs[model]))
    return jobs


def _runs(curves: Mapping[str, Curve], kind: str, gang: int) -> bool:
    return kind in curves and len(curves[kind].steps_per_s) >= gang and curves[kind].at(gang) > 0


def _gang(rng: random.Random, curves: Mapping[str, Curve], recipe: Recipe) -> int:
    """The drawn size, or the next smaller one in the table for the model."""
    drawn = rng.choices([size for size, _ in SCALES], [share for _, share in SCALES])[0]
    return max(size for size, _ in SCALES if size <= drawn and _runs(curves, recipe.reference_type, size))


def _entry(
    number: int, arrival_s: float, model: str, gang: int, steps: float, curves: Mapping[str, Curve]
) -> dict[str, Any]:
    speeds = {kind: curve.at(gang) for kind, curve in sorted(curves.items()) if _runs(curves, kind, gang)}
    spread = {kind: curves[kind].spread_at(gang) for kind in speeds}
    return {
        "id": str(number),
        "arrival_s": arrival_s,
        "total_steps": steps,
        "model_type": model,
        "min_gpus": gang,
        "max_gpus": gang,
        "throughputs": {
            kind: {"steps_per_s": {str(gang): speed}, "spread_factor": spread[kind]} for kind, speed in speeds.items()
        },
    }
