"""Bounds of a promoted policy: as requested, their resolved values, and whether one is exceeded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ConfigDict, Field, model_validator

from portal.core.problems import FieldProblem, Problems
from portal.rollouts.indicators import Indicators
from scheduling.validation import StrictNumbers

#: Points of the cluster are kept this long by default.
MOST_GUARD_S = 14 * 86_400
#: A factor of almost nothing would be exceeded by the first job that waits.
LEAST_WAIT_S, LEAST_VARIANCE = 60.0, 0.25
#: Points with waiting jobs that are needed before utilisation is judged.
LEAST_SAMPLES = 4


class _Part(StrictNumbers):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class AtMost(_Part):
    """Either an absolute value, or a factor of the prediction (without one, of what was measured before)."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"factor": 1.5}]})

    most: float | None = Field(None, gt=0.0, le=1e9)
    factor: float | None = Field(None, ge=1.0, le=1_000.0)

    @model_validator(mode="after")
    def _one(self) -> AtMost:
        if (self.most is None) == (self.factor is None):
            raise ValueError("give either most or factor")
        return self


class AtLeast(_Part):
    """Either an absolute value (0 to 1), or points below the prediction (without one, below what was measured
    before)."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"points": 0.2}]})

    least: float | None = Field(None, gt=0.0, le=1.0)
    points: float | None = Field(None, gt=0.0, lt=1.0, description="0.2: twenty percentage points.")

    @model_validator(mode="after")
    def _one(self) -> AtLeast:
        if (self.least is None) == (self.points is None):
            raise ValueError("give either least or points")
        return self


class Bounds(_Part):
    """Null: not watched."""

    wait_p95_s: AtMost | None = AtMost(factor=1.5)
    slowdown_variance: AtMost | None = AtMost(factor=2.0)
    utilisation: AtLeast | None = AtLeast(points=0.2)

    @model_validator(mode="after")
    def _some(self) -> Bounds:
        if not any((self.wait_p95_s, self.slowdown_variance, self.utilisation)):
            raise ValueError("watch at least one of wait_p95_s, slowdown_variance and utilisation")
        return self


class Guard(_Part):
    bounds: Bounds = Bounds()
    guard_s: int = Field(86_400, ge=60, le=MOST_GUARD_S, description="How long it is watched once it is in force.")
    least_jobs: int = Field(
        10, ge=1, le=10_000, description="Jobs that waited, or that ended, before those figures are judged."
    )
    least_s: int | None = Field(
        None, ge=0, le=MOST_GUARD_S, description="Seconds before anything is judged; null: ten minutes at most."
    )

    @model_validator(mode="after")
    def _in_time(self) -> Guard:
        if self.least_s is not None and self.least_s >= self.guard_s:
            raise ValueError("least_s: must be less than guard_s")
        return self

    @property
    def from_s(self) -> int:
        return min(600, self.guard_s // 4) if self.least_s is None else self.least_s


def resolve(bounds: Bounds, prediction: Indicators | None, before: Indicators) -> dict[str, float | None]:
    """The value of each bound; null if it is not watched, or has nothing to refer to."""

    def reference(key: str) -> float | None:
        predicted = prediction.values()[key] if prediction else None
        return before.values()[key] if predicted is None else predicted

    return {
        "wait_p95_s": _most(bounds.wait_p95_s, reference("wait_p95_s"), LEAST_WAIT_S),
        "slowdown_variance": _most(bounds.slowdown_variance, reference("slowdown_variance"), LEAST_VARIANCE),
        "utilisation": _least(bounds.utilisation, reference("utilisation")),
    }


def _most(bound: AtMost | None, reference: float | None, floor: float) -> float | None:
    if bound is None or bound.most is not None:
        return bound.most if bound else None
    assert bound.factor is not None
    return None if reference is None else max(floor, bound.factor * reference)


def _least(bound: AtLeast | None, reference: float | None) -> float | None:
    if bound is None or bound.least is not None:
        return bound.least if bound else None
    assert bound.points is not None
    return None if reference is None else max(0.0, reference - bound.points)


def check_resolved(limits: Mapping[str, float | None]) -> None:
    """Raises Problems if nothing would be watched."""
    if all(limit is None for limit in limits.values()):
        said = (
            "have nothing to be a part of: there is no prediction, and nothing was measured before; give most or least"
        )
        raise Problems([FieldProblem("bounds", said, "unknown")])


def broken(limits: Mapping[str, float | None], seen: Indicators, *, least_jobs: int) -> list[str]:
    """Which indicators exceed their bounds, among those based on enough data."""
    enough = {
        "wait_p95_s": seen.waits >= least_jobs,
        "slowdown_variance": seen.ended >= max(2, least_jobs),
        "utilisation": seen.samples >= LEAST_SAMPLES,
    }
    found = []
    for key, value in seen.values().items():
        limit = limits.get(key)
        if limit is None or value is None or not enough[key]:
            continue
        if value < limit if key == "utilisation" else value > limit:
            found.append(key)
    return found


def words(key: str, limits: Mapping[str, Any], seen: Indicators) -> str:
    """Words an indicator that exceeds its bound."""
    value, limit = seen.values()[key] or 0.0, float(limits[key] or 0.0)
    if key == "utilisation":
        return f"utilisation was {value:.1%} while jobs waited, below {limit:.1%}"
    if key == "wait_p95_s":
        return f"the 95th percentile of waits was {value:,.0f} s, above {limit:,.0f} s"
    return f"the variance of slowdown was {value:.3g}, above {limit:.3g}"
