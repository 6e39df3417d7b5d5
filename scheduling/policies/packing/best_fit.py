"""Each job goes to the node with the least free GPUs, CPUs and memory afterwards.

Objective: minimise, over the nodes that fit, the free capacity afterwards, summed over the three as fractions of the
node's capacity. On the node, the fullest devices that suffice. The usual greedy for vector bin packing; Weng et al.,
"Beware of Fragmentation" (ATC 2023), section 6.1, has it as a baseline.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from scheduling.capacity.node_capacity import UNBOUNDED, Demand, Ints, NodeCapacity
from scheduling.policies.packing.base import PackingPolicy


class BestFit(PackingPolicy):
    name: ClassVar[str] = "best_fit"
    title: ClassVar[str] = "Best fit"

    def choose(self, node_capacity: NodeCapacity, demand: Demand, rows: Ints, memory: Any) -> tuple[int, ...]:
        left = node_capacity.free(rows) - demand.total
        capacity = node_capacity.capacity[rows]
        parts = np.where((capacity > 0) & (capacity < UNBOUNDED), left / np.maximum(capacity, 1), 0.0)
        row = int(rows[np.argmin(parts.sum(axis=1))])
        return node_capacity.tightest(row, demand)
