"""Calibrated intervals: split conformal prediction on earlier forecasts and their outcomes.

The error of a forecast is measured on a logarithmic scale, relative to the spread of its futures. Quantiles of the
errors in a preceding window turn the next forecasts into intervals (Lei and others, 2018, section 2.2 and 5.2; one
quantile for each end, as in conformal predictive systems, Vovk and others, 2019). Jobs that still wait count as
censored: their error is at least the present one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from scheduling.forecast.forecast import Start
from scheduling.forecast.survival import Survival

#: Differences of this many seconds do not matter.
_GRAIN_S = 30.0
#: Uncertainty that futures do not show, as a deviation on the logarithmic scale: they all draw from the same past.
_UNSEEN = 0.3
#: The horizon of forecasts; calendars end beyond it.
LONGEST_S = 50 * 365 * 86_400.0
#: With fewer outcomes forecasts are not calibrated.
LEAST_SAMPLES = 30
LOW, MIDDLE, HIGH = 0.1, 0.5, 0.9
#: Standard deviations between the 10th and the 90th percentile of a normal distribution.
_DEVIATIONS = 2.563


@dataclass(frozen=True, slots=True)
class Sample:
    """The forecast of one job, and how long it then waited; `over` False: at least that long, and it still waits."""

    said: Start
    waited_s: float
    over: bool = True


@dataclass(frozen=True, slots=True)
class Calibration:
    """Quantiles of the errors of forecasts, and the number of outcomes. Without outcomes forecasts are unchanged."""

    low: float = -_DEVIATIONS / 2
    middle: float = 0.0
    high: float = _DEVIATIONS / 2
    outcomes: int = 0

    @property
    def fitted(self) -> bool:
        return self.outcomes >= LEAST_SAMPLES

    def apply(self, said: Start) -> Start:
        if not self.fitted:
            return said
        # A past without errors is no guarantee: futures keep their spread.
        low = min(self.low, self.middle + _off(said.p10_s, said))
        high = max(self.high, self.middle + _off(said.p90_s, said))
        p10, p50, p90 = (max(said.least_s, _at(said, off)) for off in (low, self.middle, high))
        return replace(said, p10_s=p10, p50_s=p50, p90_s=p90)


def calibrate(samples: Sequence[Sample]) -> Calibration:
    """Calibrate on the forecasts of a preceding window."""
    outcomes = sum(sample.over for sample in samples)
    if outcomes < LEAST_SAMPLES:
        return Calibration()
    offs = Survival.of([_off(sample.waited_s, sample.said) for sample in samples], [sample.over for sample in samples])
    # The next error is one of n + 1 exchangeable ones: its rank among them decides.
    one = 1.0 / len(samples)
    low = offs.quantile(max(0.0, LOW * (1.0 + one) - one))
    middle, high = offs.quantile(MIDDLE), offs.quantile(HIGH * (1.0 + one))
    largest = float(offs.values[-1])
    return Calibration(min(low, largest), min(middle, largest), min(high, largest), outcomes)


def _spread(said: Start) -> float:
    apart = math.log((said.p90_s + _GRAIN_S) / (said.p10_s + _GRAIN_S)) / _DEVIATIONS
    return math.hypot(_UNSEEN, apart)


def _off(waited_s: float, said: Start) -> float:
    return math.log((waited_s + _GRAIN_S) / (said.p50_s + _GRAIN_S)) / _spread(said)


def _at(said: Start, off: float) -> float:
    """The wait with an error of `off`."""
    exponent = min(off * _spread(said), 50.0)
    return min(LONGEST_S, max(0.0, (said.p50_s + _GRAIN_S) * math.exp(exponent) - _GRAIN_S))
