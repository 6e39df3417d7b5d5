"""What a launch uses of its GPUs: by processes on emulated devices, by NVML on real ones (played here)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest
from evenkeel.runner.probes import NvmlProbe, ProcessProbe, Reading, probe_for
from evenkeel.runner.processes import Process, descendants
from evenkeel.runner.samples import MOST, Sampler, halved
from evenkeel.runner.spec import LaunchSpec
from hypothesis import given
from hypothesis import strategies as st


class Driver:
    """NVML as far as it is asked, one device; `lacks` are calls that it refuses, as older devices do."""

    NVMLError = pynvml.NVMLError
    NVML_SUCCESS, NVML_ERROR_NOT_SUPPORTED = pynvml.NVML_SUCCESS, pynvml.NVML_ERROR_NOT_SUPPORTED
    NVML_PCIE_UTIL_TX_BYTES, NVML_PCIE_UTIL_RX_BYTES = pynvml.NVML_PCIE_UTIL_TX_BYTES, pynvml.NVML_PCIE_UTIL_RX_BYTES
    NVML_GPM_METRICS_GET_VERSION = pynvml.NVML_GPM_METRICS_GET_VERSION
    NVML_GPM_METRIC_SM_OCCUPANCY = pynvml.NVML_GPM_METRIC_SM_OCCUPANCY
    c_nvmlGpmMetricsGet_t = pynvml.c_nvmlGpmMetricsGet_t

    def __init__(self, *lacks: str, own_pid: int = 7) -> None:
        self._lacks, self._pid, self.opened = lacks, own_pid, 0

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("nvml") and name in object.__getattribute__(self, "_lacks"):
            return self._refuses
        return object.__getattribute__(self, name)

    def _refuses(self, *arguments: Any) -> Any:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        return uuid

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> Any:
        return SimpleNamespace(gpu=80)

    def nvmlDeviceGetProcessUtilization(self, handle: str, since: int) -> list[Any]:
        said = [(self._pid, 20, 100), (self._pid, 30, 200), (99, 50, 200)]
        return [SimpleNamespace(pid=pid, smUtil=busy, timeStamp=at) for pid, busy, at in said]

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> Any:
        return SimpleNamespace(total=1000, used=600)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: str) -> list[Any]:
        return [SimpleNamespace(pid=self._pid, usedGpuMemory=250), SimpleNamespace(pid=99, usedGpuMemory=350)]

    def nvmlDeviceGetMaxPcieLinkGeneration(self, handle: str) -> int:
        return 3

    def nvmlDeviceGetMaxPcieLinkWidth(self, handle: str) -> int:
        return 16

    def nvmlDeviceGetPcieThroughput(self, handle: str, kind: int) -> int:
        return {self.NVML_PCIE_UTIL_TX_BYTES: 1_576_000, self.NVML_PCIE_UTIL_RX_BYTES: 6_304_000}[kind]

    def nvmlGpmQueryDeviceSupport(self, handle: str) -> Any:
        return SimpleNamespace(isSupportedDevice=1)

    def nvmlGpmSampleAlloc(self) -> Any:
        return pynvml.c_nvmlGpmSample_t()

    def nvmlGpmSampleGet(self, handle: str, sample: Any) -> None:
        return None

    def nvmlGpmMetricsGet(self, wanted: Any) -> None:
        assert wanted.metrics[0].metricId == pynvml.NVML_GPM_METRIC_SM_OCCUPANCY
        wanted.metrics[0].value, wanted.metrics[0].nvmlReturn = 42.0, 0


def process(pid: int, *, cpu_s: float = 0.0, rss_mib: float = 0.0) -> Process:
    return Process(pid, "python", "R", 1, 1, cpu_s, 0, rss_mib)


def test_a_device_that_the_launch_has_alone_says_all_four() -> None:
    probe = NvmlProbe(["GPU-a"], alone=True, open_nvml=Driver)
    reading = probe.read(0.0, [process(7)], None)
    assert reading is not None
    assert (reading.gpu, reading.gpu_memory, reading.gpu_cores) == (0.8, 0.25, 0.42)
    assert reading.pcie == pytest.approx(0.25, rel=0.01)


def test_of_a_shared_device_only_what_is_known_by_process_is_said() -> None:
    probe = NvmlProbe(["GPU-a"], alone=False, open_nvml=Driver)
    assert probe.read(0.0, [process(7)], None) == Reading(0.3, 0.25, None, None)
    assert probe.read(0.0, [process(8)], None) == Reading(None, None, None, None), "others' use is not one's own"


def test_where_the_driver_numbers_processes_otherwise_a_whole_device_is_its_only_job_s() -> None:
    probe = NvmlProbe(["GPU-a"], alone=True, open_nvml=Driver)
    reading = probe.read(0.0, [process(8)], None)
    assert reading is not None
    assert reading.gpu_memory == 0.6


def test_what_a_device_cannot_say_stays_empty() -> None:
    lacks = ("nvmlGpmQueryDeviceSupport", "nvmlDeviceGetPcieThroughput", "nvmlDeviceGetUtilizationRates")
    probe = NvmlProbe(["GPU-a"], alone=True, open_nvml=lambda: Driver(*lacks))
    assert probe.read(0.0, [process(7)], None) == Reading(None, 0.25, None, None)


def test_without_a_driver_nothing_is_said_and_it_is_not_asked_again() -> None:
    asked = []

    def broken() -> Any:
        asked.append(1)
        raise ImportError("no pynvml")

    probe = NvmlProbe(["GPU-a"], alone=True, open_nvml=broken)
    assert [probe.read(0.0, [], None) for _ in range(3)] == [None] * 3
    assert len(asked) == 1


def test_emulated_devices_say_the_processes_part_of_the_device() -> None:
    probe = ProcessProbe(workers=2, share=0.5, pace_steps_per_s=None, device_mib=1000)
    assert probe.read(0.0, [process(1, cpu_s=0.0)], None) is None, "the first reading has nothing to compare with"
    reading = probe.read(10.0, [process(1, cpu_s=8.0, rss_mib=300), process(2, rss_mib=100)], None)
    assert reading is not None
    assert reading.gpu == pytest.approx(0.5 * 0.4)
    assert (reading.gpu_memory, reading.gpu_cores, reading.pcie) == (0.2, None, None)


def test_waiting_for_the_pace_stands_for_computing() -> None:
    probe = ProcessProbe(workers=1, share=0.5, pace_steps_per_s=10.0, device_mib=0)
    probe.read(0.0, [process(1)], 0)
    reading = probe.read(10.0, [process(1, cpu_s=1.0, rss_mib=10)], 90)
    assert reading is not None
    assert reading.gpu == pytest.approx(0.45)
    assert reading.gpu_memory is None


def test_processes_that_have_given_their_memory_back_are_no_sample() -> None:
    probe = ProcessProbe(workers=1, share=1.0, pace_steps_per_s=10.0, device_mib=1000)
    probe.read(0.0, [process(1, rss_mib=10)], 0)
    assert probe.read(10.0, [process(1, cpu_s=5.0)], 100) is None


def test_a_launch_without_gpus_is_not_watched() -> None:
    spec: Any = SimpleNamespace(emulated_devices="", cuda_visible_devices="", sample_interval_s=5.0)
    assert probe_for(spec) is None
    assert Sampler(spec, lambda: None).take() is None


values = st.one_of(st.none(), st.floats(0, 1))


@given(st.lists(st.tuples(values, values), min_size=1, max_size=40))
def test_halving_keeps_bounds_and_order(parts: list[tuple[float | None, float | None]]) -> None:
    rows: list[list[float | None]] = [[float(at), *both] for at, both in enumerate(parts)]
    found = halved(rows)
    assert len(found) == (len(rows) + 1) // 2
    assert [row[0] for row in found] == [row[0] for row in rows[::2]]
    for column in (1, 2):
        known = [value for row in rows if (value := row[column]) is not None]
        kept = [value for row in found if (value := row[column]) is not None]
        assert all(min(known) - 1e-4 <= value <= max(known) + 1e-4 for value in kept)


class Steady:
    source = "processes"

    def read(self, now: float, below: Any, step: int | None) -> Reading:
        return Reading(gpu=0.5)


def test_a_report_is_bounded_however_long_nobody_took_any() -> None:
    sampler = Sampler(SimpleNamespace(sample_interval_s=5.0), lambda: None, Steady())  # type: ignore[arg-type]
    for _ in range(3 * MOST):
        sampler.read(0.0)
    said = sampler.take()
    assert said is not None
    assert len(said["samples"]) <= MOST
    assert said["interval_s"] == 20.0
    assert sampler.take() is None


BUSY = "import time\nwhile True:\n    sum(range(10_000))\n"


def test_real_processes_are_watched() -> None:
    """A busy program of this machine takes most of a processor, and its memory is seen."""
    child = subprocess.Popen([sys.executable, "-c", BUSY])
    try:
        probe = ProcessProbe(workers=1, share=1.0, pace_steps_per_s=None, device_mib=1024)
        probe.read(time.monotonic(), [one for one in descendants(os.getpid()) if one.pid == child.pid], None)
        time.sleep(1.5)
        below = [one for one in descendants(os.getpid()) if one.pid == child.pid]
        reading = probe.read(time.monotonic(), below, None)
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    assert reading is not None
    assert reading.gpu is not None
    assert reading.gpu > 0.05
    assert reading.gpu_memory is not None
    assert 0 < reading.gpu_memory < 0.1


def test_a_launch_that_was_written_by_an_older_portal_is_read(tmp_path: Path) -> None:
    optional = {"gpu_share_percent", "device_memory_mib", "sample_interval_s"}
    names = [name for name in LaunchSpec.__dataclass_fields__ if name not in optional]
    (tmp_path / "launch.json").write_text(json.dumps(dict.fromkeys(names, "") | {"environment": {}}))
    spec = LaunchSpec.read(tmp_path)
    assert (spec.gpu_share_percent, spec.device_memory_mib, spec.sample_interval_s) == (100, 0, 5.0)
