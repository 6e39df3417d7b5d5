"""Each job goes to the first node that fits it, on the first of its devices that do.

Objective: none. Constraints: processors, memory and single devices of one node. Baseline of spec: genetic-packing.
"""

from __future__ import annotations

from typing import Any, ClassVar

from scheduling.capacity.node_capacity import Demand, Ints, NodeCapacity
from scheduling.policies.packing.base import PackingPolicy


class FirstFit(PackingPolicy):
    name: ClassVar[str] = "first_fit"
    title: ClassVar[str] = "First fit"

    def choose(self, yard: NodeCapacity, demand: Demand, rows: Ints, memory: Any) -> tuple[int, ...]:
        return yard.first(int(rows[0]), demand)
