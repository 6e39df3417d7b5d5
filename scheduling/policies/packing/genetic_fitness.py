"""Evaluates many guesses at once: each guess has a node for every job of a list, tried in the list's order.

A job gets the fullest devices of its node that suffice, or nothing; jobs after it see what it took.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scheduling.capacity.node_capacity import Demand, Ints, Mask, NodeCapacity


class FitnessTrial:
    """Free capacity of `rows`, once for each guess."""

    def __init__(self, node_capacity: NodeCapacity, demands: Sequence[Demand], rows: Ints) -> None:
        self.node_capacity, self.demands, self.rows = node_capacity, demands, rows
        self.gpu, self.gpu_memory = node_capacity.gpu[rows], node_capacity.gpu_memory[rows]
        self.cpu, self.memory = node_capacity.cpu[rows], node_capacity.memory[rows]
        self.allowed = [node_capacity.allowed(demand)[rows] for demand in demands]
        self.barred = [self._barred(demand) for demand in demands]

    def _barred(self, demand: Demand) -> Mask | None:
        if not demand.excluded:
            return None
        return ~self.node_capacity.devices(Demand(1, 0, 0, 0, 0, (), demand.excluded))[self.rows]

    def placed(self, guesses: Ints) -> Mask:
        """[guess, job]: whether the job fits there. `guesses[guess, job]` indexes the rows; below 0: nowhere."""
        many = len(guesses)
        every = np.arange(many)
        gpu, gpu_memory = np.repeat(self.gpu[None], many, 0), np.repeat(self.gpu_memory[None], many, 0)
        cpu, memory = np.repeat(self.cpu[None], many, 0), np.repeat(self.memory[None], many, 0)
        found = np.zeros(guesses.shape, dtype=bool)
        for number, demand in enumerate(self.demands):
            row = np.maximum(guesses[:, number], 0)
            mine = gpu[every, row]
            enough = (mine >= demand.milli) & (gpu_memory[every, row] >= demand.gpu_memory)
            barred = self.barred[number]
            if barred is not None:
                enough &= ~barred[row]
            fits = (enough.sum(axis=1) >= demand.count) & (cpu[every, row] >= demand.cpu)
            fits &= (memory[every, row] >= demand.memory) & self.allowed[number][row] & (guesses[:, number] >= 0)
            who = np.flatnonzero(fits)
            if len(who):
                order = np.argsort(np.where(enough[who], mine[who], np.iinfo(np.int64).max), axis=1, kind="stable")
                device = order[:, : demand.count]
                gpu[who[:, None], row[who, None], device] -= demand.milli
                gpu_memory[who[:, None], row[who, None], device] -= demand.gpu_memory
                cpu[who, row[who]] -= demand.cpu
                memory[who, row[who]] -= demand.memory
                found[who, number] = True
        return found
