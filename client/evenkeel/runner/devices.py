"""Whether NVIDIA devices are sound: run as a program (evenkeel.runner.looking does), it prints one finding a line."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Row = dict[str, Any]
#: Of NVML's reasons for slower clocks those that are faults: heat, and the power supply's brake.
HW_THERMAL_SLOWDOWN, HW_POWER_BRAKE = 0x40, 0x80
RESET = "drain the node, then nvidia-smi --gpu-reset or restart it; replace the device where it comes back"
SEE_XID = "see `dmesg` for Xid errors; restart the machine"
HIDDEN = "not visible to the check, which holds none (ConstrainDevices in Slurm's cgroup.conf)"
SIZE = 256
#: What the kernel's module says of devices, whatever control groups let a process use.
DRIVER = Path("/proc/driver/nvidia")


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
    yield row("devices", "; ".join(gone) or f"{len(handles)} answer", ok=not gone, fix=SEE_XID)
    yield from conditions(nvml, handles)


def conditions(nvml: Any, handles: Mapping[str, Any]) -> Iterator[Row]:
    fix = "clean its fans and filters, and check the power supply"
    yield _each("memory errors", nvml, handles, memory_errors, RESET)
    yield _each("heat and power", nvml, handles, slowed_down, fix)


def whole(nvml: Any, instance: Any) -> Any:
    """The device of a MIG instance: errors are counted by it."""
    return nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(instance)


def handle_of(nvml: Any, name: str) -> Any:
    """By UUID, or by the number that an engine gives in CUDA_VISIBLE_DEVICES: it counts the devices that we may use."""
    if not (name.isascii() and name.isdecimal()):
        return nvml.nvmlDeviceGetHandleByUUID(name)
    usable = []
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            usable.append(nvml.nvmlDeviceGetHandleByIndex(index))
        except nvml.NVMLError as error:
            if error.value != nvml.NVML_ERROR_NO_PERMISSION:
                raise
    return usable[int(name)]


def mig_instances(nvml: Any, handle: Any) -> dict[int, Any] | None:
    """Of a device in MIG mode, by their places: there may be none. None: it is not in that mode."""
    try:
        current, _ = nvml.nvmlDeviceGetMigMode(handle)
    except nvml.NVMLError as error:
        if error.value in (nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_FUNCTION_NOT_FOUND):
            return None
        raise
    if current != nvml.NVML_DEVICE_MIG_ENABLE:
        return None
    found = {}
    for place in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            found[place] = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, place)
        except nvml.NVMLError as error:
            if error.value not in (nvml.NVML_ERROR_NOT_FOUND, nvml.NVML_ERROR_INVALID_ARGUMENT):
                raise
    return found


@dataclass(slots=True)
class Sight:
    """What a process finds of a machine's devices: those that answer, how many they are with each MIG instance as one,
    what is said of others, and how many it may not use."""

    handles: dict[str, Any] = field(default_factory=dict)
    count: int = 0
    gone: list[str] = field(default_factory=list)
    denied: int = 0


def look_around(nvml: Any) -> Sight:
    sight = Sight()
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            uuid = str(nvml.nvmlDeviceGetUUID(handle))
            instances = mig_instances(nvml, handle)
            if instances is None:
                nvml.nvmlDeviceGetMemoryInfo(handle)
            sight.count += 1 if instances is None else len(instances)
            sight.handles[uuid] = handle
        except nvml.NVMLError as error:
            if error.value == nvml.NVML_ERROR_NO_PERMISSION:
                sight.denied += 1
            else:
                sight.gone.append(f"device {index}: {error}")
    return sight


def examine_node(nvml: Any, count: int, *, hides: bool) -> Iterator[Row]:
    """See `looking.of_node`. Nothing is computed: the engine may assign any of them to a job meanwhile."""
    sight = look_around(nvml)
    yield _as_many(sight, count, hides=hides)
    if sight.handles:
        yield from conditions(nvml, sight.handles)
        yield row("computation", "not known: the check holds no GPU to compute on", known=False)


def _as_many(sight: Sight, count: int, *, hides: bool) -> Row:
    if sight.gone:
        return row("devices", "; ".join(sight.gone), ok=False, fix=SEE_XID)
    if sight.count >= count:
        return row("devices", f"{sight.count} answer")
    if hides:
        return hidden(sight.count, count)
    seen = f"{sight.count} of {count} answer" + (f", {sight.denied} may not be used" if sight.denied else "")
    return row("devices", seen, ok=False, fix=f"{SEE_XID}, or declare as many as there are")


def hidden(visible: int, count: int) -> Row:
    """A fault only where the driver itself has too few: of those it names, control groups hide any number."""
    named = driver_count()
    if named is not None and named < count:
        seen = f"the driver finds {named} of {count}"
        return row("devices", seen, ok=False, fix=f"{SEE_XID}, or declare as many as there are")
    return row("devices", f"not known: {count - visible} of {count} {HIDDEN}", known=False)


def driver_count() -> int | None:
    """Devices that the kernel's module names; None: it does not say, or some are divided (MIG)."""
    try:
        named = len(list((DRIVER / "gpus").iterdir()))
    except OSError:
        return None
    return None if any(DRIVER.glob("capabilities/gpu*/mig/gi*")) else named


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
    """Those on which nothing computes: the others are left alone."""
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


def main(arguments: Sequence[str]) -> Iterator[Row]:
    """UUIDs, or `--node COUNT [--hides]`."""
    hides = "--hides" in arguments
    count = int(arguments[1]) if arguments[:1] == ["--node"] else None
    try:
        import pynvml
    except ImportError:
        yield no_pynvml()
        return
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        if hides and error.value in (pynvml.NVML_ERROR_NO_PERMISSION, pynvml.NVML_ERROR_UNKNOWN):
            yield hidden(0, count or 0)
        else:
            yield row("devices", f"NVML does not answer: {error}", ok=False, fix="check the NVIDIA driver")
        return
    if count is not None:
        yield from examine_node(pynvml, count, hides=hides)
        return
    yield from examine(pynvml, arguments)
    free = idle(pynvml, arguments)
    yield compute(free) if free else row("computation", "not known: jobs compute on all devices", known=False)


def no_pynvml() -> Row:
    seen = f"not known: {sys.executable} has no pynvml there; install nvidia-ml-py for it"
    return row("devices", seen, known=False)


if __name__ == "__main__":
    for one in main(sys.argv[1:]):
        print(json.dumps(one), flush=True)  # noqa: T201
