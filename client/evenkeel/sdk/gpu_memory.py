"""Keeps PyTorch within the GPU memory that the job holds, where it holds part of a device."""

from __future__ import annotations

from evenkeel.sdk.settings import Settings, read_settings

CONTEXT_MIB = 512  # what CUDA itself needs in a process, outside of PyTorch's allocator


def limit_gpu_memory(settings: Settings | None = None) -> float | None:
    """Limits PyTorch's allocator in this process to EVENKEEL_GPU_MEMORY_MIB on the worker's device, less what CUDA's
    context takes (at most half of the limit), and says to which part of the device. None, and nothing is done, where
    there is no such limit or no CUDA. `evenkeel.training()` calls it; a program without the SDK's loop does so itself,
    before it allocates."""
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
    memory_mib = max(settings.gpu_memory_mib - CONTEXT_MIB, settings.gpu_memory_mib / 2)
    part = min(1.0, memory_mib * 2**20 / total)
    torch.cuda.set_per_process_memory_fraction(part, device)
    return part
