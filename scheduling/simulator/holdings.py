"""Which GPUs are taken, and how much of shared ones."""

from __future__ import annotations

from collections.abc import Iterable

from scheduling.domain import WHOLE


class Holdings:
    def __init__(self) -> None:
        self.gpus: set[int] = set()  # at least partly taken
        self._parts: dict[int, int] = {}  # of shared GPUs: thousandths taken

    def take(self, gpus: Iterable[int], milli: int) -> None:
        self.gpus.update(gpus)
        if milli < WHOLE:
            for gpu in gpus:
                self._parts[gpu] = self._parts.get(gpu, 0) + milli

    def give_back(self, gpus: Iterable[int], milli: int) -> None:
        if milli < WHOLE:
            gpus = [gpu for gpu in gpus if self._without(gpu, milli)]
        self.gpus.difference_update(gpus)

    def _without(self, gpu: int, milli: int) -> bool:
        """Whether the GPU is free afterwards."""
        self._parts[gpu] -= milli
        if self._parts[gpu]:
            return False
        del self._parts[gpu]
        return True

    def has_room(self, gpus: Iterable[int], milli: int) -> bool:
        if milli == WHOLE:
            return self.gpus.isdisjoint(gpus)
        return all(gpu not in self.gpus or self._parts.get(gpu, WHOLE) + milli <= WHOLE for gpu in gpus)
