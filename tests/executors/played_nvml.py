"""NVML for processes that a test starts: `play` puts this file first in their path as pynvml.

PLAYED_NVML are the devices, as JSON: of each what is not as it should be (`lost`, `denied`, `ecc`, `instances` where it
is in MIG mode), or a word for what becomes of NVML as a whole: `hangs`, or `missing` where nobody installed pynvml.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path
from typing import Any

import evenkeel

if __name__ == "pynvml":
    SAID = json.loads(os.environ["PLAYED_NVML"])
    if SAID == "missing":
        raise ModuleNotFoundError("No module named 'pynvml'", name="pynvml")
    spec = PathFinder.find_spec("pynvml", [path for path in sys.path if path != str(Path(__file__).parent)])
    assert spec
    assert spec.loader
    real = module_from_spec(spec)
    spec.loader.exec_module(real)
    globals().update({name: value for name, value in vars(real).items() if not name.startswith("__")})

    def nvmlInit() -> None:
        time.sleep(600 if SAID == "hangs" else 0)

    def nvmlDeviceGetCount() -> int:
        return len(SAID)

    def nvmlDeviceGetHandleByIndex(index: int) -> int:
        refused = {"lost": real.NVML_ERROR_GPU_IS_LOST, "denied": real.NVML_ERROR_NO_PERMISSION}
        if found := refused.keys() & SAID[index].keys():
            raise real.NVMLError(refused[found.pop()])
        return index

    def nvmlDeviceGetUUID(handle: int) -> str:
        return f"GPU-{handle}"

    def nvmlDeviceGetHandleByUUID(uuid: str) -> int:
        return nvmlDeviceGetHandleByIndex(int(uuid.removeprefix("GPU-")))

    def nvmlDeviceGetMemoryInfo(handle: int) -> int:
        return 1

    def nvmlDeviceGetMigMode(handle: int) -> list[int]:
        return [int("instances" in SAID[handle])] * 2

    def nvmlDeviceGetMaxMigDeviceCount(handle: int) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(handle: int, place: int) -> tuple[int, int]:
        if place >= SAID[handle]["instances"]:
            raise real.NVMLError(real.NVML_ERROR_NOT_FOUND)
        return handle, place

    def nvmlDeviceGetTotalEccErrors(handle: int, *_: Any) -> int:
        return int(SAID[handle].get("ecc", 0))

    def nvmlDeviceGetRetiredPagesPendingStatus(handle: int) -> int:
        raise real.NVMLError(real.NVML_ERROR_NOT_SUPPORTED)

    def nvmlDeviceGetRemappedRows(handle: int) -> tuple[int, ...]:
        return (0, 0, 0, 0)

    def nvmlDeviceGetCurrentClocksThrottleReasons(handle: int) -> int:
        return 0

    def nvmlDeviceGetComputeRunningProcesses(handle: int) -> list[Any]:
        return [object()]  # nobody computes here


def play(place: Path, devices: list[dict[str, int]] | str) -> dict[str, str]:
    """What the environment of these processes must have."""
    path = place / "played"
    path.mkdir(exist_ok=True)
    shutil.copy(__file__, path / "pynvml.py")
    client = Path(evenkeel.__file__).parents[1]
    return {"PYTHONPATH": f"{path}:{client}", "PLAYED_NVML": json.dumps(devices)}
