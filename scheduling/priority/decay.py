"""Usage that decays: GPU time from `half_life_s` ago counts half.

Slurm, "Multifactor Priority Plugin", PriorityDecayHalfLife; there the decay is applied once in every
PriorityCalcPeriod, here it is continuous, which is its limit for short periods.
"""

from __future__ import annotations

import math


def decayed(amount: float, seconds: float, half_life_s: float | None) -> float:
    """The rest of `amount` after this many seconds; all of it without a half-life."""
    return amount if half_life_s is None else amount * 2.0 ** (-seconds / half_life_s)


def held(from_at: float, to_at: float, now: float, half_life_s: float | None) -> float:
    """Seconds of one GPU held during an interval, decayed: the integral of 2^(-(now - t)/half-life)."""
    if to_at <= from_at:
        return 0.0
    if half_life_s is None:
        return to_at - from_at
    rate = math.log(2.0) / half_life_s
    to_part = 1.0 if to_at == now else math.exp(-rate * (now - to_at))
    return (to_part - math.exp(-rate * (now - from_at))) / rate
