"""Each job goes to the next node in turn on which it fits, so that load is spread.

Objective: none. The search begins after the node used last, also across rounds. Baseline of spec: genetic-packing.
"""

from __future__ import annotations

from typing import Any, ClassVar

from scheduling.capacity.cluster_view import RoundView
from scheduling.capacity.node_capacity import Demand, Ints, NodeCapacity
from scheduling.domain import Snapshot
from scheduling.policies.packing.base import PackingPolicy, remembered


class RoundRobin(PackingPolicy):
    name: ClassVar[str] = "round_robin"
    title: ClassVar[str] = "Round robin"

    def begin(self, snapshot: Snapshot, field: RoundView, node_capacity: NodeCapacity) -> dict[str, str]:
        return {"last": str(remembered(snapshot).get("last", ""))}

    def choose(
        self, node_capacity: NodeCapacity, demand: Demand, rows: Ints, memory: dict[str, str]
    ) -> tuple[int, ...]:
        # By name, since nodes change between rounds.
        fitting = rows.tolist()
        later = [row for row in fitting if node_capacity.nodes[row].name > memory["last"]]
        row = min(later or fitting, key=lambda row: node_capacity.nodes[row].name)
        memory["last"] = node_capacity.nodes[row].name
        return node_capacity.first(row, demand)

    def end(self, memory: dict[str, str]) -> dict[str, Any]:
        return memory
