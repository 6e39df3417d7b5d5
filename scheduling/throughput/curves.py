"""Throughput functions f_M(R): envelopes, lookups, the catalogue, and how numbers become curves.

Spec: f-scheduling, "The throughput function". The scheduler only evaluates f; this module makes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import accumulate
from pathlib import Path
from statistics import median

from scheduling.domain import Curve
from scheduling.errors import InvalidInput

PROFILES = Path(__file__).parent / "profiles"
#: Which number wins if several sources have one; `estimated` and `trial` fill the gaps.
PRECEDENCE = ("measured", "user", "catalogue", "estimated", "trial")
#: Fraction of a step that scales with GPUs, assumed for a job with only one known count.
ASSUMED_PARALLEL = 0.9


def envelope(points: Mapping[int, float]) -> tuple[float, ...]:
    """The monotone envelope of (count, steps/s): the best that up to n GPUs allow, for n = 1, 2, ..."""
    best, values = 0.0, []
    for count in range(1, max(points, default=0) + 1):
        best = max(best, points.get(count, 0.0))
        values.append(best)
    return tuple(values)


def make_curve(points: Mapping[int, float], source: str = "catalogue", spread_factor: float = 1.0) -> Curve:
    """A curve from any measured counts; counts in between take the next smaller one's value."""
    if any(count < 1 or value < 0 for count, value in points.items()):
        raise InvalidInput("a throughput curve needs counts from 1 and steps/s from 0")
    return Curve(envelope(points), source, spread_factor)


def factors_by_count(ratios: Mapping[int, float]) -> tuple[float, ...]:
    """Spread factors for 1, 2, ... GPUs; counts in between take the next smaller one's.

    At most 1: a table in which gangs are faster apart than together shows measurement noise.
    """
    factor, factors = 1.0, []
    for count in range(1, max(ratios, default=0) + 1):
        factor = min(1.0, ratios.get(count, factor))
        factors.append(factor)
    return tuple(factors)


@lru_cache(maxsize=16384)
def effective(curve: Curve, limit: int, largest_node: int) -> tuple[float, ...]:
    """f at 0, 1, ..., until it is constant or `limit` is reached; gangs above `largest_node` must span nodes.

    Spanning may cost more than the extra GPUs gain; then staying on one node is best, so the envelope is taken again.
    """
    steps = curve.steps_per_s[: max(0, limit)]
    if curve.spread_factor != 1.0 or curve.spread_factors:
        apart = enumerate(steps[largest_node:], largest_node + 1)
        steps = steps[:largest_node] + tuple(value * curve.spread_at(count) for count, value in apart)
    return (0.0, *accumulate(steps, max))


def scale(curve: Curve, factor: float) -> Curve:
    """The curve of a cluster sped up `factor` times (emulation); the caller scales min_gain too."""
    return replace(curve, steps_per_s=tuple(value * factor for value in curve.steps_per_s))


def amdahl(serial_s: float, parallel_s: float, limit: int) -> tuple[float, ...]:
    """Steps/s on 1..limit GPUs if a step takes serial_s + parallel_s / n."""
    return tuple(1.0 / (serial_s + parallel_s / count) for count in range(1, limit + 1))


def fit_amdahl(points: Mapping[int, float]) -> tuple[float, float]:
    """(serial_s, parallel_s) that best explain the step times: least squares, neither below zero.

    A single count says nothing about scaling: ASSUMED_PARALLEL is then the parallel fraction on one GPU.
    """
    known = [(1.0 / count, 1.0 / value) for count, value in points.items() if value > 0]
    if not known:
        raise InvalidInput("no positive throughput to fit")
    mean_x, mean_y = (sum(column) / len(known) for column in zip(*known, strict=True))
    spread = sum((x - mean_x) ** 2 for x, _ in known)
    if spread == 0.0:
        whole = mean_y / (1.0 - ASSUMED_PARALLEL + ASSUMED_PARALLEL * mean_x)
        return whole * (1.0 - ASSUMED_PARALLEL), whole * ASSUMED_PARALLEL
    slope = sum((x - mean_x) * (y - mean_y) for x, y in known) / spread
    if slope <= 0.0:
        return mean_y, 0.0
    serial = mean_y - slope * mean_x
    if serial < 0.0:
        return 0.0, sum(x * y for x, y in known) / sum(x * x for x, _ in known)
    return serial, slope


# Measuring -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sample:
    """One report of a run: `steps` in `seconds`, of which the first step was number `since_launch`."""

    model: str
    batch_size: int
    type: str
    count: int
    steps: int
    seconds: float
    since_launch: int
    at: float


@dataclass(frozen=True, slots=True)
class Number:
    """One value of f with its source and time; `samples` is 0 if it was not measured.

    `relative_error` is the error bar of an estimate: 0.3 is 30 % either way, covering nine out of ten.
    """

    steps_per_s: float
    source: str
    at: float | None = None
    samples: int = 0
    relative_error: float | None = None

    def age_s(self, now: float) -> float | None:
        return None if self.at is None else max(0.0, now - self.at)


Key = tuple[str, int, str, int]  # model, batch size, accelerator type, count


def measure(
    samples: Iterable[Sample], *, warm_up_steps: int = 10, window: int = 30, least: int = 3
) -> dict[Key, Number]:
    """Median steps/s of the latest `window` reports after warm-up, for each (model, batch, type, count).

    The median, because a checkpoint or a busy neighbour can slow single reports considerably; fewer than `least`
    reports do not count as a measurement.
    """
    groups: dict[Key, list[Sample]] = {}
    for sample in samples:
        if sample.since_launch >= warm_up_steps and sample.seconds > 0 and sample.steps > 0:
            groups.setdefault((sample.model, sample.batch_size, sample.type, sample.count), []).append(sample)
    numbers = {}
    for key, group in groups.items():
        latest = sorted(group, key=lambda sample: sample.at)[-window:]
        if len(latest) >= least:
            value = median(sample.steps / sample.seconds for sample in latest)
            numbers[key] = Number(value, "measured", latest[-1].at, len(latest))
    return numbers


# Merging -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Profile:
    """A curve on one type and, per count, the number behind it (the envelope may be higher)."""

    curve: Curve
    numbers: Mapping[int, Number]


def merge(sources: Sequence[Mapping[int, Number]], *, limit: int, spread: Curve | None = None) -> Profile:
    """One curve on 1..limit GPUs from several sources; PRECEDENCE decides count by count.

    If a better source has only some counts, the next one gives the shape of the rest, scaled to meet it at the nearest
    known count: a job measured at half its catalogue speed on 2 GPUs is not expected to reach the full catalogue speed
    on 3. Numbers scaled like this are called `estimated`. The loss of gangs that span nodes comes from `spread`.
    """
    chosen: dict[int, Number] = {}
    known = [number for source in sources for number in source.values()]
    for rank in PRECEDENCE:
        layer = {n: v for source in sources for n, v in source.items() if v.source == rank and 1 <= n <= limit}
        _fill(chosen, layer)
    if known and all(number.source == "measured" for number in known):
        serial, parallel = fit_amdahl({count: number.steps_per_s for count, number in chosen.items()})
        guess = dict(enumerate(amdahl(serial, parallel, limit), 1))
        _fill(chosen, {count: Number(value, "estimated") for count, value in guess.items() if count > min(chosen)})
    best = min((number.source for number in chosen.values()), key=PRECEDENCE.index, default="trial")
    points = {count: number.steps_per_s for count, number in chosen.items()}
    curve = Curve(envelope(points), best)
    if spread is not None:
        curve = replace(curve, spread_factor=spread.spread_factor, spread_factors=spread.spread_factors)
    return Profile(curve, dict(sorted(chosen.items())))


def _fill(chosen: dict[int, Number], layer: Mapping[int, Number]) -> None:
    """Add the counts that `layer` has beyond `chosen`, scaled to meet it."""
    shape = envelope({count: number.steps_per_s for count, number in layer.items()})
    anchors = {n: number.steps_per_s for n, number in chosen.items() if shape and shape[min(n, len(shape)) - 1] > 0}
    for count, number in layer.items():
        if count in chosen:
            continue
        if anchors:
            nearest = min(anchors, key=lambda n: (abs(n - count), n))
            ratio = anchors[nearest] / shape[min(nearest, len(shape)) - 1]
            number = replace(number, steps_per_s=number.steps_per_s * ratio, source="estimated")
        chosen[count] = number


def numbers_of(curve: Curve, at: float | None = None) -> dict[int, Number]:
    """A curve as numbers for `merge`."""
    return {count: Number(value, curve.source, at) for count, value in enumerate(curve.steps_per_s, 1) if value > 0}


def trial_curve(min_gpus: int = 1) -> Curve:
    """The curve of a job without known throughput: one nominal step/s on its minimum, no gain beyond.

    It therefore runs on its minimum until that is measured; `merge` then extends the measurement.
    """
    return Curve((0.0,) * (max(1, min_gpus) - 1) + (1.0,), "trial")


# Catalogue -----------------------------------------------------------------------------------------


@cache
def catalogue(folder: Path = PROFILES) -> Mapping[str, Mapping[str, Curve]]:
    """{model type: {accelerator type: curve}} of every profiles/*.json."""
    found: dict[str, dict[str, Curve]] = {}
    for path in sorted(folder.glob("*.json")):
        data = json.loads(path.read_text())
        try:
            found[data["model_type"]] = {kind: _entry(entry) for kind, entry in data["types"].items()}
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInput(f"{path.name}: {error!r}") from None
    return found


def _entry(entry: Mapping[str, object]) -> Curve:
    points = entry["steps_per_s"]
    if not isinstance(points, dict):
        raise TypeError("steps_per_s must map counts to steps/s")
    source = "estimated" if entry.get("estimated") else "catalogue"
    factor = entry.get("spread_factor", 1.0)
    return make_curve({int(n): float(v) for n, v in points.items()}, source, float(str(factor)))
