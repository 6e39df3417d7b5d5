"""Integrals and series over simulated time, updated at events."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import defaultdict

from scheduling.domain import WHOLE


class Meter:
    """Counts change only after `advance`; the cost is independent of the number of live jobs."""

    def __init__(self, start: float) -> None:
        self.at = start
        self.live = 0
        self.training = 0
        self.milli = 0  # thousandths of GPUs on which jobs train
        self._shares = self._squares = 0.0  # of relative throughput over training jobs
        self._variance = self._trained_s = 0.0
        self.seconds_at: defaultdict[int, float] = defaultdict(float)  # thousandths of GPUs training -> seconds
        self.times, self.levels = array("d"), array("l")  # from each time on, this many thousandths trained
        self._moments, self._live_area = array("d", [start]), array("d", [0.0])

    def advance(self, now: float) -> None:
        seconds = now - self.at
        if seconds <= 0.0:
            return
        self.seconds_at[self.milli] += seconds
        if not self.levels or self.levels[-1] != self.milli:
            self.times.append(self.at)
            self.levels.append(self.milli)
        if self.training:
            self._variance += self.variance * seconds
            self._trained_s += seconds
        self._moments.append(now)
        self._live_area.append(self._live_area[-1] + self.live * seconds)
        self.at = now

    def train(self, milli: int, share: float, sign: int) -> None:
        """A job with relative throughput `share` begins (1) or ends (-1) training on this many thousandths of GPUs."""
        self.training += sign
        self.milli += sign * milli
        self._shares += sign * share
        self._squares += sign * share * share
        if not self.training:
            self._shares = self._squares = 0.0

    @property
    def variance(self) -> float:
        mean = self._shares / self.training
        return max(0.0, self._squares / self.training - mean * mean)

    @property
    def mean_variance(self) -> float:
        return self._variance / self._trained_s if self._trained_s else 0.0

    @property
    def gpu_seconds(self) -> float:
        return sum(milli / WHOLE * seconds for milli, seconds in self.seconds_at.items())

    def mean_live(self, start: float, end: float) -> float:
        """The mean number of live jobs between two times."""
        return (self._area(end) - self._area(start)) / (end - start) if end > start else 0.0

    def _area(self, at: float) -> float:
        index = max(0, bisect_right(self._moments, at) - 1)
        moment, value = self._moments[index], self._live_area[index]
        if index + 1 < len(self._moments) and at > moment:
            later, after = self._moments[index + 1], self._live_area[index + 1]
            value += (after - value) * (at - moment) / (later - moment)
        return value
