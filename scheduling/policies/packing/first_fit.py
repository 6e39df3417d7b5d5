"""Each job goes to the first node on which it fits, and to the first devices that fit.

Objective: none. Constraints: CPUs, memory and single devices of one node. Baseline of spec: genetic-packing.
"""

from __future__ import annotations

from typing import Any, ClassVar

from scheduling.capacity.node_capacity import Demand, Ints, NodeCapacity
from scheduling.policies.packing.base import PackingPolicy


class FirstFit(PackingPolicy):
    name: ClassVar[str] = "first_fit"
    title: ClassVar[str] = "First fit"

    def choose(self, node_capacity: NodeCapacity, demand: Demand, rows: Ints, memory: Any) -> tuple[int, ...]:
        return node_capacity.first(int(rows[0]), demand)
