"""How jobs with known histories used their GPUs."""

from __future__ import annotations


class Usage:
    """Integrals over simulated seconds of the use by jobs with histories, in devices."""

    def __init__(self) -> None:
        self.gpu_s = self.memory_s = 0.0
        self.out_of_memory = 0
