"""How busy GPUs are, by the driver and by processes."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest
from evenkeel.runner.gauges import RECENT_S, EmulatedGauge, Lately, NoGauge, NvmlGauge, gauge_for, mean_over
from hypothesis import given
from hypothesis import strategies as st


class Driver:
    """NVML as far as it is asked; `said` are the percentages of each device, one sample after the other."""

    def __init__(self, said: dict[str, list[int]]) -> None:
        self._said = {uuid: iter(values) for uuid, values in said.items()}

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        if uuid not in self._said:
            raise RuntimeError("no such device")
        return uuid

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> Any:
        return SimpleNamespace(gpu=next(self._said[handle]))


def test_a_device_s_samples_are_averaged_between_reports() -> None:
    driver = Driver({"GPU-a": [100, 50, 0], "GPU-b": [0, 0, 80]})
    gauge = NvmlGauge(["GPU-a", "GPU-b"], lambda: driver)
    assert gauge.take(0.0, 0.0, None) is None
    gauge.sample()
    gauge.sample()
    assert gauge.take(10.0, 0.0, None) == [0.75, 0.0]
    gauge.sample()
    assert gauge.take(10.5, 0.0, None) is None, "half a second says nothing"
    assert gauge.take(20.0, 0.0, None) == [0.0, 0.8]
    assert gauge.take(30.0, 0.0, None) is None, "no sample since"


def test_where_the_driver_cannot_say_it_stays_unknown() -> None:
    calls = itertools.count()

    def broken() -> Any:
        next(calls)
        raise ImportError("no pynvml")

    gauge = NvmlGauge(["GPU-a"], broken)
    for _ in range(3):
        gauge.sample()
    assert gauge.take(10.0, 0.0, None) is None
    assert next(calls) == 1, "it is not asked again"
    elsewhere = NvmlGauge(["GPU-z"], lambda: Driver({"GPU-a": [100]}))
    elsewhere.sample()
    assert elsewhere.take(10.0, 0.0, None) is None


def test_what_others_compute_on_a_shared_device_is_not_taken_for_ones_own() -> None:
    def gauge(sharing: str) -> Any:
        spec: Any = SimpleNamespace(emulated_devices="", cuda_visible_devices="GPU-a", gpu_sharing=sharing)
        return gauge_for(spec)

    assert isinstance(gauge(""), NvmlGauge)
    assert isinstance(gauge("Shares its GPU by time slicing"), NoGauge)


def test_an_emulated_device_is_as_busy_as_its_process() -> None:
    gauge = EmulatedGauge(2, None)
    assert gauge.take(100.0, 5.0, None) is None
    assert gauge.take(110.0, 15.0, None) == [0.5, 0.5]
    assert gauge.take(110.5, 15.5, None) is None
    assert gauge.take(120.0, 15.0, None) == [0.0, 0.0], "processes that ended take their time with them"


def test_waiting_for_the_pace_counts_as_computing() -> None:
    gauge = EmulatedGauge(1, 8.0)
    gauge.take(0.0, 0.0, 0)
    assert gauge.take(10.0, 0.5, 80) == [1.0]
    assert gauge.take(20.0, 1.0, 120) == [0.5]
    assert gauge.take(30.0, 1.5, 120) == [0.05], "asleep between two steps"


@given(
    st.integers(1, 8),
    st.none() | st.floats(0.01, 1e4),
    st.lists(st.tuples(st.floats(0, 100), st.floats(-50, 1e4), st.integers(0, 10**9)), min_size=1, max_size=20),
)
def test_it_is_always_a_part_of_one(workers: int, pace: float | None, course: list[tuple[float, float, int]]) -> None:
    gauge, now = EmulatedGauge(workers, pace), 0.0
    for wait_s, cpu_s, step in course:
        now += wait_s
        found = gauge.take(now, cpu_s, step)
        assert found is None or (len(found) == workers and all(0.0 <= value <= 1.0 for value in found))


def test_it_says_nothing_twice() -> None:
    gauge = EmulatedGauge(1, None)
    gauge.take(0.0, 0.0, None)
    total = sum((gauge.take(float(t), float(t) / 2, None) or [0.0])[0] for t in range(1, 11))
    assert total / 10 == pytest.approx(0.5)


def test_the_numbers_that_an_engine_gives_count_the_devices_that_one_may_use() -> None:
    class Numbered(Driver):
        NVMLError, NVML_ERROR_NO_PERMISSION = pynvml.NVMLError, pynvml.NVML_ERROR_NO_PERMISSION

        def nvmlDeviceGetCount(self) -> int:
            return 3

        def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
            if index == 0:
                raise pynvml.NVMLError(pynvml.NVML_ERROR_NO_PERMISSION)
            return ["", "GPU-a", "GPU-b"][index]

    driver = Numbered({"GPU-a": [10], "GPU-b": [70]})
    gauge = NvmlGauge(["1"], lambda: driver)
    gauge.sample()
    assert gauge.take(10.0, 0.0, None) == [0.7]


def test_each_gpu_of_a_run_on_several_nodes_counts_as_much() -> None:
    first, second, silent = Lately(), Lately(), Lately()
    first.hear(0.0, [0.8])
    second.hear(0.0, [0.2, 0.0])
    second.hear(2.0, [0.4, 0.2])
    assert mean_over([first, second, silent], 2.0) == [0.4]
    first.hear(4.0, None)
    assert mean_over([first, second], 4.0) == [0.4], "nothing new, and nothing old yet"
    second.hear(RECENT_S + 2.0, [1.0, 1.0])
    assert mean_over([first, second], RECENT_S + 2.0) == [1.0], "the first has said nothing for too long"
    assert mean_over([silent], 0.0) is None
