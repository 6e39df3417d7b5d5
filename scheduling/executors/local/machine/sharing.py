"""Shared devices: how a job, and the driver if possible, keep to the job's GPU share."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

from scheduling.executors.base import AcceleratorInfo, Finding, LaunchRequest

MPS_DIRECTORY = "/tmp/nvidia-mps"  # noqa: S108  # nosec B108 (where NVIDIA's daemon listens unless told otherwise)
NO_MPS = "no-mps"  # nothing in the epoch's directory has this name, so that no daemon listens there
WHOLE = 100


def variables(
    request: LaunchRequest,
    devices: Sequence[AcceleratorInfo],
    epoch_dir: Path,
    environ: Mapping[str, str] = os.environ,
) -> dict[str, str]:
    """On real devices also which MPS daemon to use: the driver asks for one by itself, and a job with a whole device
    would wait there behind others."""
    share, memory_mib = request.gpu_share_percent, request.gpu_memory_mib
    found = {} if share >= WHOLE else {"EVENKEEL_GPU_SHARE_PERCENT": str(share)}
    if memory_mib is not None:
        found["EVENKEEL_GPU_MEMORY_MIB"] = str(memory_mib)
    if _emulated(devices):
        return found
    mps = mps_directory(environ) if found else None
    if mps is None:
        return found | {"CUDA_MPS_PIPE_DIRECTORY": str(epoch_dir / NO_MPS)}
    found |= {"CUDA_MPS_PIPE_DIRECTORY": mps, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(min(share, WHOLE))}
    if memory_mib is not None:  # by index among the devices that the job sees
        limits = (f"{ordinal}={memory_mib}M" for ordinal in range(len(devices)))
        found["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = ",".join(limits)
    return found


def in_words(request: LaunchRequest, devices: Sequence[AcceleratorInfo], given: Mapping[str, str]) -> str:
    """How the devices are shared, by the given variables; empty if they are not."""
    share = request.gpu_share_percent
    if share >= WHOLE:
        return ""
    own = "its GPU" if len(devices) == 1 else "each of its GPUs"
    if _emulated(devices):
        paced = f"paced to {share} %" if request.pace_steps_per_s else "without a given pace"
        return f"Shares {own}, emulated: {paced}"
    if "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE" in given:
        return f"Shares {own} by MPS (at most {share} % of its threads)"
    return f"Shares {own} by time slicing (nothing holds it to its {share} %)"


def mps_directory(environ: Mapping[str, str]) -> str | None:
    """The directory of NVIDIA's MPS control daemon. Checked with the job's rights: a daemon that the job cannot access
    does not exist for it. A connection would prove that the daemon still runs, but each attempt leaves an error in its
    log; and if it is gone, the driver continues without it."""
    directory, problem = _daemon(environ)
    return directory if problem == "" else None


def examine(environ: Mapping[str, str] = os.environ, *, accounts: bool = False) -> Finding:
    """How GPU shares of real devices are enforced here. `accounts`: jobs run under accounts other than ours."""
    subject = "parts of GPUs"
    directory, problem = _daemon(environ, accounts=accounts)
    if problem is None:
        return Finding(subject, True, f"by time slicing: no MPS daemon listens in {directory}")
    if not problem:
        return Finding(subject, True, f"by MPS, whose daemon listens in {directory}")
    fix = f"stop the daemon, remove {directory}, `install -d -m 0755 {directory}`, and start it again"
    return Finding(subject, False, f"by time slicing, not by the MPS daemon in {directory}: {problem}", fix)


def _daemon(environ: Mapping[str, str], *, accounts: bool = False) -> tuple[str, str | None]:
    """Its directory, and why it is not used; empty: it is, None: there is none."""
    directory = environ.get("CUDA_MPS_PIPE_DIRECTORY") or MPS_DIRECTORY
    try:
        place, control = Path(directory).lstat(), Path(directory, "control").lstat()
    except PermissionError:
        return directory, "it cannot be reached from here"
    except OSError:
        return directory, None
    if not (stat.S_ISSOCK(control.st_mode) or stat.S_ISFIFO(control.st_mode)):
        return directory, None
    if accounts and not (place.st_mode & stat.S_IXOTH and control.st_mode & stat.S_IWOTH):
        return directory, "the accounts of projects cannot reach it"
    return directory, _distrusted(place, control)


def _distrusted(place: os.stat_result, control: os.stat_result) -> str:
    """Only root's or our own counts: in /tmp anybody, even a job, can create one with that name. The daemon itself
    makes its directory writable for everybody by default."""
    if stat.S_ISLNK(place.st_mode):
        return "that is a symbolic link"
    if not {place.st_uid, control.st_uid} <= {0, os.geteuid()}:
        return "it belongs to another account"
    return "everybody may write there" if place.st_mode & stat.S_IWOTH else ""


def _emulated(devices: Sequence[AcceleratorInfo]) -> bool:
    return all(device.emulated for device in devices)
