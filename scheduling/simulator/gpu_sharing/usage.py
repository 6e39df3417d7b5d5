"""What jobs with known histories made of their GPUs."""

from __future__ import annotations


class Usage:
    """Integrals over simulated seconds of what jobs with histories use, in devices."""

    def __init__(self) -> None:
        self.gpu_s = self.memory_s = 0.0
        self.out_of_memory = 0
