"""How busy the GPUs of a launch are, averaged over the time between two reports."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from statistics import mean
from typing import Any, Protocol

from evenkeel.runner.devices import handle_of
from evenkeel.runner.spec import LaunchSpec

log = logging.getLogger(__name__)

#: An average over less says nothing; the next report has it.
SHORTEST_S = 1.0
#: What a node said longer ago says nothing of now; they speak every two seconds.
RECENT_S = 10.0


class Gauge(Protocol):
    def sample(self) -> None:
        """Called about once a second."""

    def take(self, now: float, cpu_s: float, step: int | None) -> list[float] | None:
        """Of each GPU the part of the time, 0 to 1, in which it worked since this was asked last; None: not known."""


class NvmlGauge:
    """What the driver says of real devices: the part of its last sampling period in which a kernel ran.

    NVML is opened with the first sample, after the workers were started: they inherit nothing of it.
    """

    def __init__(self, devices: Sequence[str], open_nvml: Callable[[], Any] | None = None) -> None:
        self._devices, self._open = devices, open_nvml or _open_nvml
        self._read: Callable[[], list[float]] | None = None
        self._failed = False
        self._sums = [0.0] * len(devices)
        self._samples = 0
        self._since: float | None = None

    def sample(self) -> None:
        if self._failed:
            return
        try:
            self._read = self._read or _reader(self._open(), self._devices)
            self._sums = [total + value for total, value in zip(self._sums, self._read(), strict=True)]
            self._samples += 1
        except Exception as error:  # no driver, no permission, a device that cannot say: it stays unknown
            log.info("the use of the GPUs is not known: %s", error)
            self._failed = True

    def take(self, now: float, cpu_s: float, step: int | None) -> list[float] | None:
        del cpu_s, step
        if not self._samples or (self._since is not None and now - self._since < SHORTEST_S):
            return None
        found = [min(1.0, total / self._samples) for total in self._sums]
        self._sums, self._samples, self._since = [0.0] * len(self._sums), 0, now
        return found


def _open_nvml() -> Any:
    import pynvml  # comes with the portal; where it is missing nothing is known

    pynvml.nvmlInit()
    return pynvml


def _reader(nvml: Any, devices: Sequence[str]) -> Callable[[], list[float]]:
    handles = [handle_of(nvml, name) for name in devices]
    return lambda: [nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100 for handle in handles]


class EmulatedGauge:
    """Emulated devices compute on processors: the part of a processor that each worker had, or, where steps are
    paced, the part of the pace that was kept if that is more (waiting for the pace stands for computing)."""

    def __init__(self, workers: int, pace_steps_per_s: float | None) -> None:
        self._workers, self._pace = workers, pace_steps_per_s
        self._before: tuple[float, float, int | None] | None = None

    def sample(self) -> None:
        pass

    def take(self, now: float, cpu_s: float, step: int | None) -> list[float] | None:
        before = self._before
        if before is None or now - before[0] >= SHORTEST_S:
            self._before = (now, cpu_s, step)
        if before is None or now - before[0] < SHORTEST_S:
            return None
        elapsed_s = now - before[0]
        busy = (cpu_s - before[1]) / (elapsed_s * self._workers)
        if self._pace and step is not None and before[2] is not None:
            busy = max(busy, (step - before[2]) / (elapsed_s * self._pace))
        return [round(min(1.0, max(0.0, busy)), 4)] * self._workers


class NoGauge:
    """No GPUs, or GPUs that others compute on too: the driver says how busy a device is, not by whom."""

    def sample(self) -> None:
        pass

    def take(self, now: float, cpu_s: float, step: int | None) -> list[float] | None:
        return None


def gauge_for(spec: LaunchSpec) -> Gauge:
    if spec.emulated_devices:
        return EmulatedGauge(spec.workers, spec.pace_steps_per_s)
    if not spec.cuda_visible_devices or spec.gpu_sharing:
        return NoGauge()
    return NvmlGauge(spec.cuda_visible_devices.split(","))


class Lately:
    """What one node of several said of its GPUs: of each the mean since this was asked last, or where nothing came
    since, for a while, what it was then."""

    def __init__(self) -> None:
        self._said: list[list[float]] = []
        self._before: list[float] = []
        self._at = float("-inf")

    def hear(self, now: float, values: Sequence[float] | None) -> None:
        if values:
            self._said.append(list(values))
            self._at = now

    def take(self, now: float) -> list[float]:
        if self._said:
            self._before, self._said = [mean(values) for values in zip(*self._said, strict=False)], []
        return self._before if now - self._at <= RECENT_S else []


def mean_over(nodes: Iterable[Lately], now: float) -> list[float] | None:
    """One value, the mean over all GPUs of the nodes that said something lately; None: none did."""
    values = [value for node in nodes for value in node.take(now)]
    return [round(mean(values), 4)] if values else None
