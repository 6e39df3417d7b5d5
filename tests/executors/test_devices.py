"""What the examination of NVIDIA devices makes of what their driver says. There is no device here: the driver is
played, by the answers that NVML's documentation gives."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest
from evenkeel.runner import devices, hosting
from evenkeel.runner.looking import examined as examined_apart
from evenkeel.runner.looking import of_node

from tests.executors.played_nvml import play


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


# In processes of their own, as nodes do it


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    def play_devices(*said: dict[str, int], as_whole: str = "") -> None:
        for name, value in play(tmp_path, as_whole or list(said)).items():
            monkeypatch.setenv(name, value)

    return play_devices


def seen(rows: list[devices.Row]) -> dict[str, tuple[bool, bool, str]]:
    return {row["subject"]: (row["ok"], row["known"], row["seen"]) for row in rows}


def test_of_a_node_all_devices_are_examined_and_none_computes(here: Any) -> None:
    here({}, {})
    assert seen(of_node(2)) == {
        "devices": (True, True, "2 answer"),
        "memory errors": (True, True, "none"),
        "heat and power": (True, True, "none"),
        "computation": (True, False, "not known: the check holds no GPU to compute on"),
    }


def test_a_fault_of_one_device_of_a_node_is_found(here: Any) -> None:
    here({}, {"ecc": 3})
    found = seen(of_node(2))
    assert found["memory errors"] == (False, True, "GPU-1: 3 uncorrected")


def test_a_lost_device_of_a_node_is_named(here: Any) -> None:
    here({}, {"lost": 1})
    assert seen(of_node(2, hides=True))["devices"] == (False, True, "device 1: GPU is lost")


def test_fewer_devices_than_declared_are_a_fault_where_the_engine_hides_none(here: Any) -> None:
    here({}, {"denied": 1})
    assert seen(of_node(3))["devices"] == (False, True, "1 of 3 answer, 1 may not be used")
    here({}, {}, {})
    assert seen(of_node(2))["devices"] == (True, True, "3 answer")


def test_of_a_device_in_mig_mode_its_instances_count(here: Any) -> None:
    here({"instances": 3}, {})
    assert seen(of_node(4))["devices"] == (True, True, "4 answer")


@pytest.mark.parametrize("said", [[{"denied": 1}, {"denied": 1}], []])
def test_devices_that_the_engine_hides_are_not_taken_for_lost(here: Any, said: list[dict[str, int]]) -> None:
    here(*said)
    (row,) = of_node(2, hides=True)
    assert (row["ok"], row["known"]) == (True, False)
    assert row["seen"].startswith("not known: 2 of 2 not visible to the check")


def test_where_the_driver_itself_has_too_few_they_are_lost_and_not_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "DRIVER", tmp_path)
    (tmp_path / "gpus" / "0000:01:00.0").mkdir(parents=True)
    found = devices.hidden(0, 2)
    assert (found["ok"], found["seen"]) == (False, "the driver finds 1 of 2")
    assert devices.hidden(0, 1)["known"] is False
    (tmp_path / "capabilities" / "gpu0" / "mig" / "gi1").mkdir(parents=True)
    assert devices.hidden(0, 2)["known"] is False


def test_without_pynvml_a_node_says_what_to_install(here: Any) -> None:
    here(as_whole="missing")
    (row,) = of_node(2)
    assert (row["ok"], row["known"]) == (True, False)
    assert "install nvidia-ml-py" in row["seen"]


def test_a_driver_that_does_not_answer_fails_in_time(here: Any) -> None:
    here(as_whole="hangs")
    (row,) = of_node(2, timeout_s=1.0)
    assert (row["subject"], row["ok"], row["seen"]) == ("device examination", False, "no answer within 1 s")
    assert row["fix"]


def test_devices_named_by_uuid_are_examined_in_the_same_words(here: Any) -> None:
    here({}, {"ecc": 1}, {"ecc": 2})
    found = seen(examined_apart(["GPU-0", "GPU-1"], 60.0, dict(os.environ)))
    assert found["devices"] == (True, True, "2 answer")
    assert found["memory errors"] == (False, True, "GPU-1: 1 uncorrected")
    assert found["computation"] == (True, False, "not known: jobs compute on all devices")


def test_the_probe_of_a_host_has_a_word_on_real_devices_only(here: Any, tmp_path: Path) -> None:
    here({}, {})
    (tmp_path / "nonce").write_text("nonce")
    asked = (str(tmp_path), "nonce", "http://127.0.0.1:9", "", "a")
    assert "devices" not in hosting.probe(*asked)
    assert seen(hosting.probe(*asked, 3)["devices"])["devices"] == (False, True, "2 of 3 answer")
