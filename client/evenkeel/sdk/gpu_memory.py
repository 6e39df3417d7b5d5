"""Keeps PyTorch within the GPU memory that the job holds, where it holds part of a device."""

from __future__ import annotations

from evenkeel.sdk.settings import Settings, read_settings


def limit_gpu_memory(settings: Settings | None = None) -> float | None:
    """Limits PyTorch's allocator in this process to EVENKEEL_GPU_MEMORY_MIB on the worker's device, and says to which
    part of it. None, and nothing is done, where there is no such limit or no CUDA. `evenkeel.training()` calls it; a
    program without the SDK's loop does so itself, before it allocates."""
    settings = settings or read_settings()
    if settings.gpu_memory_mib is None:
        return None
    try:
        import torch
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None
    device = settings.local_rank % torch.cuda.device_count()  # a program may have hidden all but its own
    total = torch.cuda.get_device_properties(device).total_memory
    part = min(1.0, settings.gpu_memory_mib * 2**20 / total)
    torch.cuda.set_per_process_memory_fraction(part, device)
    return part
