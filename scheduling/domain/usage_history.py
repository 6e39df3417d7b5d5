"""GPU use of a program that ran alone: a series for each of four resources, sampled at one interval.

Source: spec co-placement, "Profiles" (Sookmyung Women's University, 2019). A job without a history is assumed to use
its GPU share and its memory all the time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from scheduling.errors import InvalidInput
from scheduling.validation import is_number

#: In the order of the images' channels.
RESOURCES = ("gpu", "gpu_memory", "gpu_cores", "pcie")
MOST_SAMPLES = 4_096


@dataclass(frozen=True, slots=True)
class ResourceHistory:
    """Fractions, 0 to 1, of one device: its time, memory, cores (SM occupancy) and PCIe throughput.

    Sample n covers the seconds from n to n + 1 times `interval_s`; all four series have the same length, at least 1.
    """

    interval_s: float
    gpu: tuple[float, ...]
    gpu_memory: tuple[float, ...]
    gpu_cores: tuple[float, ...]
    pcie: tuple[float, ...]

    @property
    def duration_s(self) -> float:
        return self.interval_s * len(self.gpu)


def history_json(history: ResourceHistory) -> dict[str, Any]:
    """The inverse of `parse_history`."""
    return {"interval_s": history.interval_s, **{name: list(getattr(history, name)) for name in RESOURCES}}


def parse_history(value: Any, place: str = "history") -> ResourceHistory:
    """Raises InvalidInput that names the field; its message begins with `place`."""
    if not isinstance(value, Mapping):
        raise InvalidInput(f"{place}: it must be an object with interval_s, {', '.join(RESOURCES)}")
    unknown = sorted(set(value) - {"interval_s", *RESOURCES})
    if unknown:
        raise InvalidInput(f"{place}: {unknown[0]!r} is none of interval_s, {', '.join(RESOURCES)}")
    interval: Any = value.get("interval_s")
    if not is_number(interval) or interval <= 0:
        raise InvalidInput(f"{place}, interval_s: {interval!r} must be a number above 0")
    series = {name: _series(value.get(name), f"{place}, {name}") for name in RESOURCES}
    for name, samples in series.items():
        if len(samples) != len(series["gpu"]):
            raise InvalidInput(f"{place}, {name}: {len(samples)} samples where gpu has {len(series['gpu'])}")
    return ResourceHistory(float(interval), **series)


def _series(value: Any, place: str) -> tuple[float, ...]:
    if not isinstance(value, list | tuple) or not 1 <= len(value) <= MOST_SAMPLES:
        raise InvalidInput(f"{place}: it must be a list of 1 to {MOST_SAMPLES} numbers from 0 to 1")
    for number, sample in enumerate(value):
        if not is_number(sample) or not 0 <= sample <= 1:
            raise InvalidInput(f"{place}, {number}: {sample!r} must be a number from 0 to 1")
    return tuple(float(sample) for sample in value)
