"""Whether NVIDIA devices are sound: run as a program with their UUIDs, it prints one finding a line.

It is a process of its own because a driver in trouble answers late or never. Without the package: any interpreter runs
it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

Row = dict[str, Any]
#: Of NVML's reasons for slower clocks those that are faults: heat, and the power supply's brake.
HW_THERMAL_SLOWDOWN, HW_POWER_BRAKE = 0x40, 0x80
RESET = "drain the node, then nvidia-smi --gpu-reset or restart it; replace the device where it comes back"
SIZE = 256


def row(subject: str, seen: str, *, ok: bool = True, known: bool = True, fix: str = "") -> Row:
    return {"subject": subject, "ok": ok, "seen": seen, "fix": "" if ok else fix, "known": known}


def examine(nvml: Any, uuids: Sequence[str]) -> Iterator[Row]:
    """What NVML says of them. `nvml` is pynvml, initialised."""
    handles, gone = dict[str, Any](), list[str]()
    for uuid in uuids:
        try:
            handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
            nvml.nvmlDeviceGetMemoryInfo(handle)
            handles[uuid] = whole(nvml, handle) if uuid.startswith("MIG-") else handle
        except nvml.NVMLError as error:
            gone.append(f"{uuid}: {error}")
    fix = "see `dmesg` for Xid errors; restart the machine"
    yield row("devices", "; ".join(gone) or f"{len(handles)} answer", ok=not gone, fix=fix)
    fix = "clean its fans and filters, and check the power supply"
    yield _each("memory errors", nvml, handles, memory_errors, RESET)
    yield _each("heat and power", nvml, handles, slowed_down, fix)


def whole(nvml: Any, instance: Any) -> Any:
    """The device of a MIG instance: errors are counted by it."""
    return nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(instance)


def _each(subject: str, nvml: Any, handles: Mapping[str, Any], look: Callable[[Any, Any], str | None], fix: str) -> Row:
    said = {uuid: look(nvml, handle) for uuid, handle in handles.items()}
    bad = [f"{uuid}: {words}" for uuid, words in said.items() if words]
    unknown = not bad and all(words is None for words in said.values())
    seen = "; ".join(bad[:5]) or ("not known: these devices do not say" if unknown else "none")
    return row(subject, seen, ok=not bad, known=not unknown, fix=fix)


def _asked(nvml: Any, call: Callable[[], Any]) -> Any:
    """None where this device does not say; a fault of the device otherwise is its answer."""
    try:
        return call()
    except nvml.NVMLError as error:
        if error.value in (nvml.NVML_ERROR_GPU_IS_LOST, nvml.NVML_ERROR_TIMEOUT, nvml.NVML_ERROR_UNKNOWN):
            return error
        return None


def memory_errors(nvml: Any, handle: Any) -> str | None:
    """Errors since the driver was loaded that no code corrected, and pages or rows that wait to be replaced."""
    uncorrected = nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
    count = _asked(nvml, lambda: nvml.nvmlDeviceGetTotalEccErrors(handle, *uncorrected))
    pages = _asked(nvml, lambda: nvml.nvmlDeviceGetRetiredPagesPendingStatus(handle))
    rows = _asked(nvml, lambda: nvml.nvmlDeviceGetRemappedRows(handle))  # corrected, uncorrected, pending, failed
    if broken := next((str(one) for one in (count, pages, rows) if isinstance(one, nvml.NVMLError)), None):
        return broken
    if count is None and pages is None and rows is None:
        return None
    said = [f"{count} uncorrected"] if count else []
    said += ["pages wait to be retired"] if pages == nvml.NVML_FEATURE_ENABLED else []
    said += ["rows wait to be remapped"] if rows and rows[2] else []
    said += ["rows could not be remapped"] if rows and rows[3] else []
    return ", ".join(said)


def slowed_down(nvml: Any, handle: Any) -> str | None:
    reasons = _asked(nvml, lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))
    if reasons is None or isinstance(reasons, nvml.NVMLError):
        return None if reasons is None else str(reasons)
    celsius = _asked(nvml, lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))
    warmth = f" at {celsius} °C" if isinstance(celsius, int) else ""
    said = [f"slowed down by heat{warmth}"] if reasons & HW_THERMAL_SLOWDOWN else []
    said += ["slowed down by the power supply"] if reasons & HW_POWER_BRAKE else []
    return ", ".join(said)


def idle(nvml: Any, uuids: Sequence[str]) -> list[str]:
    """Those that nobody computes on: the others are left alone."""
    found = []
    for uuid in uuids:
        busy = _asked(nvml, lambda uuid=uuid: nvml.nvmlDeviceGetComputeRunningProcesses(  # type: ignore[misc]
            nvml.nvmlDeviceGetHandleByUUID(uuid)
        ))  # fmt: skip
        if busy == []:
            found.append(uuid)
    return found


def compute(uuids: Sequence[str]) -> Row:
    """The same product of matrices on each device as on the processor; small whole numbers, so that it is exact."""
    fix = "see `dmesg` for Xid errors; reset the device"
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(uuids)
    try:
        import torch
    except ImportError:
        return row("computation", "not known: PyTorch is not there", known=False)
    if torch.version.cuda is None:
        return row("computation", "not known: PyTorch is built without CUDA", known=False)
    try:
        left = (torch.arange(SIZE * SIZE) % 7).reshape(SIZE, SIZE).float()
        expected, wrong = left @ left.T, []
        for index in range(torch.cuda.device_count()):
            there = left.to(f"cuda:{index}")
            if not torch.equal((there @ there.T).cpu(), expected):
                wrong.append(uuids[index])
    except torch.cuda.OutOfMemoryError:
        return row("computation", "not known: others took the memory meanwhile", known=False)
    except Exception as error:
        return row("computation", " ".join(str(error).split())[:300], ok=False, fix=fix)
    count = torch.cuda.device_count()
    if count < len(uuids):
        return row("computation", f"CUDA finds {count} of {len(uuids)} devices", ok=False, fix=fix)
    seen = f"wrong results: {', '.join(wrong)}" if wrong else f"right on {count}"
    return row("computation", seen, ok=not wrong, fix=fix)


def main(uuids: Sequence[str]) -> Iterator[Row]:
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        yield row("devices", f"NVML does not answer: {error}", ok=False, fix="check the NVIDIA driver")
        return
    yield from examine(pynvml, uuids)
    free = idle(pynvml, uuids)
    yield compute(free) if free else row("computation", "not known: jobs compute on all devices", known=False)


if __name__ == "__main__":
    for one in main(sys.argv[1:]):
        print(json.dumps(one), flush=True)  # noqa: T201
