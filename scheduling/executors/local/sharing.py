"""Parts of devices: what tells a job, and the driver where it may, to keep to the part it holds."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

from scheduling.executors.base import AcceleratorInfo, LaunchRequest

MPS_DIRECTORY = "/tmp/nvidia-mps"  # noqa: S108  # nosec B108 (where NVIDIA's daemon listens unless told otherwise)
WHOLE = 100


def variables(
    request: LaunchRequest, devices: Sequence[AcceleratorInfo], environ: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Nothing where the run has its devices to itself and no limit to their memory."""
    share, memory_mib = request.gpu_share_percent, request.gpu_memory_mib
    found = {} if share >= WHOLE else {"EVENKEEL_GPU_SHARE_PERCENT": str(share)}
    if memory_mib is not None:
        found["EVENKEEL_GPU_MEMORY_MIB"] = str(memory_mib)
    mps = mps_directory(environ) if found and not _emulated(devices) else None
    if mps is None:
        return found
    found |= {"CUDA_MPS_PIPE_DIRECTORY": mps, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(min(share, WHOLE))}
    if memory_mib is not None:  # by ordinal among the devices that the job sees
        limits = (f"{ordinal}={memory_mib}M" for ordinal in range(len(devices)))
        found["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = ",".join(limits)
    return found


def in_words(request: LaunchRequest, devices: Sequence[AcceleratorInfo], given: Mapping[str, str]) -> str:
    """How the devices are shared, by the variables that were given; empty where they are not."""
    share = request.gpu_share_percent
    if share >= WHOLE:
        return ""
    own = "its GPU" if len(devices) == 1 else "each of its GPUs"
    if _emulated(devices):
        paced = f"paced to {share} %" if request.pace_steps_per_s else "without a given pace"
        return f"Shares {own}, emulated: {paced}"
    if "CUDA_MPS_PIPE_DIRECTORY" in given:
        return f"Shares {own} by MPS (at most {share} % of its threads)"
    return f"Shares {own} by time slicing (nothing holds it to its {share} %)"


def mps_directory(environ: Mapping[str, str]) -> str | None:
    """Where NVIDIA's MPS control daemon listens. Asked with the job's rights: one that the job cannot reach is none
    for it. Connecting would prove that the daemon still runs, but each attempt leaves a complaint in its log; and
    where it is gone, the driver goes on without it."""
    directory = environ.get("CUDA_MPS_PIPE_DIRECTORY") or MPS_DIRECTORY
    with contextlib.suppress(OSError):
        mode = Path(directory, "control").stat().st_mode
        return directory if stat.S_ISSOCK(mode) or stat.S_ISFIFO(mode) else None
    return None


def _emulated(devices: Sequence[AcceleratorInfo]) -> bool:
    return all(device.emulated for device in devices)
