"""The most GPUs that queued jobs can use at once: an integer program, for small clusters and as a reference.

Objective: maximise the sum over placed jobs of devices times GPU share. Constraints: x[j, n] places job j on node n, at
most once; y[j, d] gives it a share of device d, as many on its node as it needs; shares and memory of each device, CPUs
and memory of each node; jobs blocked by a limit are left out. Ties and queue order do not matter. Beyond `most_cells`
of y, or if the solver has no answer in time, best fit places the jobs. Ours (spec: genetic-packing, "Evaluation").
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pulp
from pydantic import Field

from scheduling.capacity.node_capacity import UNBOUNDED, Demand, NodeCapacity
from scheduling.domain import Snapshot
from scheduling.errors import SolverError
from scheduling.policies.base import Parameters as BaseParameters
from scheduling.policies.packing.base import Planned
from scheduling.policies.packing.best_fit import BestFit
from scheduling.solvers.budget import time_budget_s
from scheduling.solvers.integer import solve_integers


class Parameters(BaseParameters):
    time_limit_s: float = Field(default=10.0, gt=0.0, le=600.0, description="After this jobs go where they fit best.")
    most_nodes: int = Field(
        default=20_000, ge=1, le=10_000_000, description="Nodes of the search, after which likewise."
    )
    most_cells: int = Field(
        default=20_000, ge=1, le=1_000_000, description="Jobs times devices up to which it is solved."
    )


class PackingExact(BestFit):
    name: ClassVar[str] = "packing_exact"
    title: ClassVar[str] = "Packing, exact"
    Parameters: ClassVar[type[BaseParameters]] = Parameters

    def plan(self, snapshot: Snapshot, node_capacity: NodeCapacity, wanted: Mapping[str, Demand]) -> Planned:
        cells = {
            key: int(node_capacity.devices(demand)[node_capacity.fitting(demand)].sum())
            for key, demand in wanted.items()
        }
        demands = {key: wanted[key] for key, count in cells.items() if count}
        if not demands:
            return Planned()
        if sum(cells.values()) > self.parameters.most_cells:
            raise SolverError("too large for an exact answer")
        limit_s = time_budget_s(snapshot, self.parameters.time_limit_s)
        return Planned(_Program(node_capacity, demands).solve(limit_s, self.parameters.most_nodes))


class _Program:
    def __init__(self, node_capacity: NodeCapacity, demands: Mapping[str, Demand]) -> None:
        self.node_capacity, self.demands = node_capacity, demands
        self.program = pulp.LpProblem("packing", pulp.LpMaximize)
        self.on = dict[tuple[str, int], Any]()  # x by job, node
        self.parts = dict[tuple[str, int, int], Any]()  # y by job, node, device
        for key, demand in demands.items():
            self._choices(key, demand)
        self._capacities()
        used = [demands[key].count * demands[key].milli * x for (key, _), x in self.on.items()]
        self.program += pulp.lpSum(used)

    def _choices(self, key: str, demand: Demand) -> None:
        devices, once = self.node_capacity.devices(demand), []
        for row in self.node_capacity.fitting(demand).tolist():
            x = self.on[key, row] = self.program.add_variable(f"x{len(self.on)}", cat="Binary")
            once.append(x)
            parts = []
            for column in np.flatnonzero(devices[row]).tolist():
                y = self.parts[key, row, column] = self.program.add_variable(f"y{len(self.parts)}", cat="Binary")
                parts.append(y)
            self.program += pulp.lpSum(parts) == demand.count * x
        self.program += pulp.lpSum(once) <= 1

    def _capacities(self) -> None:
        node_capacity, demands = self.node_capacity, self.demands
        nodes, devices = defaultdict[int, dict[str, Any]](dict), defaultdict[tuple[int, int], dict[str, Any]](dict)
        for (key, row), x in self.on.items():
            nodes[row][key] = x
        for (key, row, column), y in self.parts.items():
            devices[row, column][key] = y
        for row, here in nodes.items():
            self._within(node_capacity.cpu[row], [demands[key].cpu * x for key, x in here.items()])
            self._within(node_capacity.memory[row], [demands[key].memory * x for key, x in here.items()])
        for place, here in devices.items():
            self._within(node_capacity.gpu[place], [demands[key].milli * y for key, y in here.items()])
            self._within(node_capacity.gpu_memory[place], [demands[key].gpu_memory * y for key, y in here.items()])

    def _within(self, free: np.int64, needs: list[Any]) -> None:
        if free < UNBOUNDED // 2:
            self.program += pulp.lpSum(needs) <= int(free)

    def solve(self, limit_s: float, most_nodes: int) -> dict[str, tuple[int, ...]]:
        """Devices by job; raises SolverError without a proven answer within the limits."""
        if not solve_integers(self.program, limit_s, most_nodes):
            return {}
        found: dict[str, tuple[int, ...]] = {}
        for (key, row, column), y in self.parts.items():
            if y.value() > 0.5:
                found[key] = (*found.get(key, ()), self.node_capacity.nodes[row].gpu_ids[column])
        return found
