"""How much free capacity no job could use: fragmentation relative to the expected jobs.

If a class of jobs does not fit on a node, all of the node's free GPU shares are fragments for it; else those on devices
with less free capacity than the class needs of one. A node's fragmentation is the mean over the classes, weighted by
their frequency. Source: Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation
Gradient Descent" (ATC 2023), section 3.2. Classes without GPUs are ignored: for them every free GPU would be a
fragment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scheduling.capacity.node_capacity import Demand, Ints, NodeCapacity
from scheduling.domain import WHOLE, plain_type

Floats = NDArray[np.float64]
#: Rarer classes of jobs are ignored.
MOST_CLASSES = 64


@dataclass(frozen=True)
class Classes:
    """By class of jobs: devices and the demand for each, CPUs and memory, and the frequency."""

    count: Ints
    milli: Ints
    cpu: Ints
    memory: Ints
    allowed: NDArray[np.bool_]  # [class, type]
    often: Floats

    @classmethod
    def of(cls, counted: Mapping[Demand, float], types: tuple[str, ...]) -> Classes:
        common = Counter(dict(counted)).most_common(MOST_CLASSES)
        demands, often = [demand for demand, _ in common], np.array([times for _, times in common], dtype=float)
        allowed = [[not demand.types or plain_type(kind) in demand.types for kind in types] for demand in demands]
        return cls(
            _array(demand.count for demand in demands),
            _array(demand.milli for demand in demands),
            _array(demand.cpu for demand in demands),
            _array(demand.memory for demand in demands),
            np.array(allowed, dtype=bool).reshape(len(demands), len(types)),
            often / often.sum() if len(often) else often,
        )

    def fragments(self, kind: Ints, cpu: Ints, memory: Ints, gpu: Ints) -> Floats:
        """Of states of nodes, in thousandths of a GPU: `gpu[state, device]` is the free capacity."""
        whole = (gpu == WHOLE).sum(axis=1)[:, None]
        enough = np.where(self.milli < WHOLE, gpu.max(axis=1, initial=0)[:, None] >= self.milli, whole >= self.count)
        fits = enough & (cpu[:, None] >= self.cpu) & (memory[:, None] >= self.memory) & self.allowed[:, kind].T
        # Free capacity on devices with less than a share: by shares in ascending order, one sum for all classes.
        ascending = np.sort(gpu, axis=1)
        sums = np.concatenate((np.zeros((len(gpu), 1), dtype=np.int64), np.cumsum(ascending, axis=1)), axis=1)
        below = (ascending[:, :, None] < self.milli).sum(axis=1)
        scraps = np.take_along_axis(sums, below, axis=1)
        return np.asarray(np.where(fits, scraps, sums[:, -1:]) @ self.often)


def _array(values: Iterable[int]) -> Ints:
    return np.fromiter(values, dtype=np.int64)


def fragmentation(node_capacity: NodeCapacity, classes: Classes) -> float:
    """Thousandths of GPUs over all nodes."""
    return float(
        classes.fragments(node_capacity.kind, node_capacity.cpu, node_capacity.memory, node_capacity.gpu).sum()
    )
