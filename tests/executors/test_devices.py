"""What the examination of NVIDIA devices makes of what their driver says. There is no device here: the driver is
played, by the answers that NVML's documentation gives."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from scheduling.executors.local import devices


def refuse(error: int) -> Any:
    def call(*_: Any) -> Any:
        raise pynvml.NVMLError(error)

    return call


WELL = {
    "nvmlDeviceGetHandleByUUID": lambda uuid: uuid,
    "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(total=1),
    "nvmlDeviceGetTotalEccErrors": lambda *_: 0,
    "nvmlDeviceGetRetiredPagesPendingStatus": refuse(pynvml.NVML_ERROR_NOT_SUPPORTED),
    "nvmlDeviceGetRemappedRows": lambda handle: (3, 0, 0, 0),
    "nvmlDeviceGetCurrentClocksThrottleReasons": lambda handle: 0x1,  # idle
    "nvmlDeviceGetTemperature": lambda *_: 41,
    "nvmlDeviceGetComputeRunningProcesses": lambda handle: [],
}


def examined(monkeypatch: pytest.MonkeyPatch, *uuids: str, **changes: Any) -> dict[str, devices.Row]:
    for name, call in (WELL | changes).items():
        monkeypatch.setattr(pynvml, name, call)
    return {row["subject"]: row for row in devices.examine(pynvml, uuids)}


def test_sound_devices_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    found = examined(monkeypatch, "GPU-a", "GPU-b")
    assert [(row["ok"], row["known"]) for row in found.values()] == [(True, True)] * 3
    assert found["devices"]["seen"] == "2 answer"


@pytest.mark.parametrize(
    ("call", "answer", "subject", "said"),
    [
        ("nvmlDeviceGetMemoryInfo", refuse(pynvml.NVML_ERROR_GPU_IS_LOST), "devices", "GPU is lost"),
        ("nvmlDeviceGetHandleByUUID", refuse(pynvml.NVML_ERROR_NOT_FOUND), "devices", "Not Found"),
        ("nvmlDeviceGetTotalEccErrors", lambda *_: 2, "memory errors", "2 uncorrected"),
        ("nvmlDeviceGetTotalEccErrors", refuse(pynvml.NVML_ERROR_GPU_IS_LOST), "memory errors", "lost"),
        ("nvmlDeviceGetRetiredPagesPendingStatus", lambda _: 1, "memory errors", "pages wait to be retired"),
        ("nvmlDeviceGetRemappedRows", lambda _: (0, 1, 1, 0), "memory errors", "rows wait to be remapped"),
        ("nvmlDeviceGetRemappedRows", lambda _: (0, 1, 0, 1), "memory errors", "could not be remapped"),
        ("nvmlDeviceGetCurrentClocksThrottleReasons", lambda _: 0x48, "heat and power", "by heat at 41 °C"),
        ("nvmlDeviceGetCurrentClocksThrottleReasons", lambda _: 0x80, "heat and power", "power supply"),
    ],
)
def test_each_fault_fails_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, call: str, answer: Any, subject: str, said: str
) -> None:
    found = examined(monkeypatch, "GPU-a", **{call: answer})
    assert {name for name, row in found.items() if not row["ok"]} == {subject}
    assert said in found[subject]["seen"]
    assert found[subject]["fix"]


def test_what_a_device_does_not_say_fails_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    silent = refuse(pynvml.NVML_ERROR_NOT_SUPPORTED)
    names = ("TotalEccErrors", "RetiredPagesPendingStatus", "RemappedRows", "CurrentClocksThrottleReasons")
    found = examined(monkeypatch, "GPU-a", **{f"nvmlDeviceGet{name}": silent for name in names})
    assert {name: (row["ok"], row["known"]) for name, row in found.items()} == {
        "devices": (True, True),
        "memory errors": (True, False),
        "heat and power": (True, False),
    }


def test_a_mig_instance_is_examined_by_its_device(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def count(handle: str, *_: Any) -> int:
        asked.append(handle)
        return 0

    monkeypatch.setattr(pynvml, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle", lambda handle: f"whole of {handle}")
    examined(monkeypatch, "MIG-1", nvmlDeviceGetTotalEccErrors=count)
    assert asked == ["whole of MIG-1"]


def test_devices_that_jobs_compute_on_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = {"GPU-a": [SimpleNamespace(pid=1)], "GPU-b": []}
    examined(monkeypatch, *busy, nvmlDeviceGetComputeRunningProcesses=busy.__getitem__)
    assert devices.idle(pynvml, list(busy)) == ["GPU-b"]


def test_without_cuda_the_computation_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    found = devices.compute(["GPU-a"])
    assert (found["ok"], found["known"]) == (True, False)
