"""Evenkeel's client: `training()` for programs that train, `evenkeel.runner` for the machines they run on."""

from evenkeel.sdk.gpu_memory import limit_gpu_memory
from evenkeel.training import Run, training

__version__ = "0.1.0"
__all__ = ["Run", "__version__", "limit_gpu_memory", "training"]
