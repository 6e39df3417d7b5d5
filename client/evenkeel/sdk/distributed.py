"""torch.distributed on demand: gloo on CPUs, NCCL on CUDA devices."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from evenkeel.sdk.gpu_memory import limit_gpu_memory
from evenkeel.sdk.settings import Settings

GLOO_THREAD = "pt_gloo_runloop"
GLOO_LIMIT_S = 30.0  # never waited for unless something is broken
#: Longer than the interpreter's switch interval, so that a thread waiting for its lock gets a turn.
REST_S = 0.02
#: Numbers the process groups of this process: a file serves one of them.
_groups = itertools.count()


def pick_device(settings: Settings) -> str:
    """The caller is about to allocate on it: a limit of the device's memory is set now."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") == "":
        return "cpu"
    try:
        import torch
    except ImportError:
        return "cpu"
    if not torch.cuda.is_available():
        return "cpu"
    limit_gpu_memory(settings)
    return f"cuda:{settings.local_rank % torch.cuda.device_count()}"  # of a MIG instance a worker sees its own alone


def init_process_group(settings: Settings, device: str) -> bool:
    """True when this call made the group (and its caller shall destroy it)."""
    import torch
    import torch.distributed as dist

    if settings.world_size == 1 or dist.is_initialized():
        return False
    cuda = device.startswith("cuda")
    if cuda:
        torch.cuda.set_device(device)
    timeout = timedelta(seconds=settings.distributed_timeout_s)
    dist.init_process_group(
        "nccl" if cuda else "gloo",
        store=_private_store(settings, timeout),
        rank=settings.rank,
        world_size=settings.world_size,
        timeout=timeout,
    )
    _outlive(dist.group.WORLD)
    return True


def _private_store(settings: Settings, timeout: timedelta) -> Any:
    """A file of the job's own, where all ranks see the same disk: PyTorch's store over TCP takes anybody's connection,
    and listens on every address of the machine. None: that one."""
    from torch._C._distributed_c10d import FileStore

    if settings.rendezvous_dir is None:
        return None
    settings.rendezvous_dir.mkdir(mode=0o700, exist_ok=True)
    store = FileStore(str(settings.rendezvous_dir / f"store-{next(_groups)}"), settings.world_size)
    store.set_timeout(timeout)
    return store


def _outlive(group: object) -> None:
    """Keeps the process group from ever being destroyed. Its destructor joins gloo's threads while holding the
    interpreter's lock, which such a thread needs to let go of the last tensor: one exit in five hung (PyTorch 2.13)."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(group))


def wait_for_gloo() -> None:
    """Waits until gloo's threads rest; for the end of the program. Some time after a collective is over such a thread
    lets go of its tensors, for which it needs the interpreter's lock. Once the interpreter is being finalized, CPython
    before 3.14 ends the thread there, inside a destructor, which ends the process by SIGABRT (pytorch/pytorch#190489).

    A thread that waits for the lock or for a processor does not sleep on while we let go of both."""
    give_up_at = time.monotonic() + GLOO_LIMIT_S
    found = _gloo_threads()
    while found and time.monotonic() < give_up_at:
        time.sleep(REST_S)
        before, found = found, _gloo_threads()
        if found == before and all(asleep for asleep, _ in found.values()):
            return


def _gloo_threads() -> dict[str, tuple[bool, str]]:
    """By number: is it asleep, and how often it has fallen asleep."""
    found = {}
    for path in Path("/proc/self/task").glob("*/status"):
        with contextlib.suppress(OSError):  # it has ended
            said = dict(line.split(":\t", 1) for line in path.read_text(errors="replace").splitlines() if ":\t" in line)
            if said["Name"] == GLOO_THREAD:
                found[path.parent.name] = said["State"].startswith("S"), said.get("voluntary_ctxt_switches", "")
    return found


def wrap(model: Any, device: str) -> Any:
    from torch.nn.parallel import DistributedDataParallel

    return DistributedDataParallel(model, device_ids=[device] if device.startswith("cuda") else None)


def weighted_mean(value: Any, weight: float) -> float:
    """Sum over ranks of value x weight."""
    import torch
    import torch.distributed as dist

    part = torch.as_tensor(value, dtype=torch.float64).detach().to("cpu", copy=True) * weight
    if dist.get_backend() == "nccl":
        part = part.to(torch.cuda.current_device())
    dist.all_reduce(part)
    return float(part)


class StepFence:
    """Keeps the host at most one step ahead of a CUDA device, so that ranks stay within two steps of
    each other although kernels run asynchronously."""

    def __init__(self) -> None:
        self._previous: Any = None

    def pass_step(self) -> None:
        import torch

        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        if self._previous is not None:
            self._previous.synchronize()
        self._previous = event
