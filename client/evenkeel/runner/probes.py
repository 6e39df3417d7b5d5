"""What a launch uses of its GPUs, read at one moment: by NVML from real devices, by processes on emulated ones."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any, Protocol, TypeVar

from evenkeel.runner.devices import handle_of
from evenkeel.runner.gauges import EmulatedGauge
from evenkeel.runner.processes import Process
from evenkeel.runner.spec import LaunchSpec

log = logging.getLogger(__name__)
T = TypeVar("T")

#: Of one lane in one direction, MB/s, by generation of the link.
_LANE_MB_PER_S = {1: 250.0, 2: 500.0, 3: 985.0, 4: 1_969.0, 5: 3_938.0, 6: 7_563.0}


@dataclass(frozen=True, slots=True)
class Reading:
    """Parts, 0 to 1, of one device, the mean over those of the launch; None: not known."""

    gpu: float | None = None
    gpu_memory: float | None = None
    gpu_cores: float | None = None
    pcie: float | None = None

    def row(self) -> list[float | None]:
        values = (self.gpu, self.gpu_memory, self.gpu_cores, self.pcie)
        return [None if value is None else round(min(1.0, max(0.0, value)), 4) for value in values]


class Probe(Protocol):
    source: str

    def read(self, now: float, below: Sequence[Process], step: int | None) -> Reading | None:
        """None: there is nothing to say yet."""


class ProcessProbe:
    """Emulated devices: processors' time, or the part of the pace that was kept if that is more, of the launch's own
    share; resident memory against what the device was declared to have. They have neither cores nor a PCIe link."""

    source = "processes"

    def __init__(self, workers: int, share: float, pace_steps_per_s: float | None, device_mib: int) -> None:
        self._workers, self._share, self._device_mib = workers, share, device_mib
        self._gauge = EmulatedGauge(workers, pace_steps_per_s)

    def read(self, now: float, below: Sequence[Process], step: int | None) -> Reading | None:
        busy = self._gauge.take(now, sum(process.cpu_s for process in below), step)
        used_mib = sum(process.rss_mib for process in below) / self._workers
        if busy is None or not used_mib:  # what is ending has given its memory back: there is nothing left to sample
            return None
        memory = used_mib / self._device_mib if self._device_mib else None
        return Reading(gpu=self._share * busy[0], gpu_memory=memory)


class NvmlProbe:
    """Real devices. What is the device's as a whole (occupancy of its cores, PCIe) is the launch's where it is `alone`
    there; of a part only what the driver knows by process is said. Each that a device cannot say is None."""

    source = "nvml"

    def __init__(self, devices: Sequence[str], *, alone: bool, open_nvml: Callable[[], Any] | None = None) -> None:
        self._devices, self._alone, self._open = devices, alone, open_nvml or _open_nvml
        self._nvml: Any = None
        self._handles: list[Any] = []
        self._occupancies: list[Occupancy | None] = []
        self._seen_us = 0
        self._failed = False

    def read(self, now: float, below: Sequence[Process], step: int | None) -> Reading | None:
        del now, step
        if self._failed:
            return None
        try:
            self._begin()
        except Exception as error:  # no library, no driver, no permission: nothing is ever known
            log.info("what the GPUs are used for is not known: %s", error)
            self._failed = True
            return None
        pids = {process.pid for process in below}
        found = [self._of_device(number, pids) for number in range(len(self._handles))]
        return Reading(*(_mean(values) for values in zip(*found, strict=True)))

    def _begin(self) -> None:
        if self._nvml is not None:
            return
        nvml = self._open()
        self._handles = [handle_of(nvml, name) for name in self._devices]
        self._nvml = nvml
        self._occupancies = [self._ask(Occupancy, nvml, handle) for handle in self._handles]

    def _ask(self, call: Callable[..., T], *arguments: Any) -> T | None:
        try:
            return call(*arguments)
        except self._nvml.NVMLError:
            return None

    def _of_device(self, number: int, pids: set[int]) -> tuple[float | None, ...]:
        handle, alone = self._handles[number], self._alone
        return (
            self._ask(self._device_busy if alone else self._own_busy, handle, pids),
            self._ask(self._memory, handle, pids),
            self._ask(self._cores, number) if alone else None,
            self._ask(self._pcie, handle) if alone else None,
        )

    def _device_busy(self, handle: Any, pids: set[int]) -> float | None:
        return float(self._nvml.nvmlDeviceGetUtilizationRates(handle).gpu) / 100

    def _own_busy(self, handle: Any, pids: set[int]) -> float | None:
        samples = self._nvml.nvmlDeviceGetProcessUtilization(handle, self._seen_us)
        self._seen_us = max((int(one.timeStamp) for one in samples), default=self._seen_us)
        newest = {one.pid: one.smUtil for one in sorted(samples, key=lambda one: one.timeStamp) if one.pid in pids}
        return sum(newest.values()) / 100 if newest else None

    def _memory(self, handle: Any, pids: set[int]) -> float | None:
        """By process; in a container of its own the driver's numbers are not ours, and alone all of it is its own."""
        nvml = self._nvml
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        running = self._ask(nvml.nvmlDeviceGetComputeRunningProcesses, handle) or []
        own = [one.usedGpuMemory for one in running if one.pid in pids and one.usedGpuMemory is not None]
        used = sum(own) if own else memory.used if self._alone else None
        return None if used is None else float(used) / float(memory.total)

    def _cores(self, number: int) -> float | None:
        occupancy = self._occupancies[number]
        return occupancy.read() if occupancy else None

    def _pcie(self, handle: Any) -> float | None:
        """Both directions against what the link can at most; the driver looks for 20 ms at each."""
        nvml = self._nvml
        lane = _LANE_MB_PER_S.get(nvml.nvmlDeviceGetMaxPcieLinkGeneration(handle))
        most = 2_000 * (lane or 0.0) * nvml.nvmlDeviceGetMaxPcieLinkWidth(handle)
        kinds = (nvml.NVML_PCIE_UTIL_TX_BYTES, nvml.NVML_PCIE_UTIL_RX_BYTES)
        return sum(nvml.nvmlDeviceGetPcieThroughput(handle, kind) for kind in kinds) / most if most else None


class Occupancy:
    """How many of the warps that its cores could hold were active: by GPM, which Hopper and later devices have."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        if not nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice:
            raise nvml.NVMLError(nvml.NVML_ERROR_NOT_SUPPORTED)
        self._nvml, self._handle = nvml, handle
        self._earlier, self._later = nvml.nvmlGpmSampleAlloc(), nvml.nvmlGpmSampleAlloc()
        nvml.nvmlGpmSampleGet(handle, self._later)

    def read(self) -> float | None:
        """Since it was asked last."""
        nvml = self._nvml
        self._earlier, self._later = self._later, self._earlier
        nvml.nvmlGpmSampleGet(self._handle, self._later)
        wanted = nvml.c_nvmlGpmMetricsGet_t()
        wanted.version, wanted.numMetrics = nvml.NVML_GPM_METRICS_GET_VERSION, 1
        wanted.sample1, wanted.sample2 = self._earlier, self._later
        wanted.metrics[0].metricId = nvml.NVML_GPM_METRIC_SM_OCCUPANCY
        nvml.nvmlGpmMetricsGet(wanted)
        metric = wanted.metrics[0]
        return float(metric.value) / 100 if metric.nvmlReturn == nvml.NVML_SUCCESS else None


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return mean(known) if known else None


def _open_nvml() -> Any:
    import pynvml  # comes with the portal; where it is missing nothing is known

    pynvml.nvmlInit()
    return pynvml


def probe_for(spec: LaunchSpec) -> Probe | None:
    """None: it has no GPU."""
    if spec.emulated_devices:
        share = spec.gpu_share_percent / 100
        return ProcessProbe(spec.workers, share, spec.pace_steps_per_s, spec.device_memory_mib)
    if not spec.cuda_visible_devices:
        return None
    return NvmlProbe(spec.cuda_visible_devices.split(","), alone=not spec.gpu_sharing)
