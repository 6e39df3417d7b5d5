"""Packing by trial: random pairs are tried, and kept only if together they are worth more than one GPU.

A baseline, not an optimum: jobs without a partner and kept pairs take equal turns on all types. A pair is kept if the
mean over types of its combined normalised throughput exceeds the threshold. The order of trials follows the snapshot's
seed, so an answer can be repeated. Source: Gandiva (OSDI 2018), section 3; Gavel (OSDI 2020), section 7.
"""

from __future__ import annotations

import random
from typing import ClassVar

import numpy as np

from scheduling.domain import Snapshot
from scheduling.policies.capabilities import Answer, Capabilities, Needs
from scheduling.policies.time_shares.base import FractionPolicy
from scheduling.policies.time_shares.programs.groups import Fractions, build, colocated
from scheduling.policies.time_shares.programs.ungrouping.ungroup import Shares


class Gandiva(FractionPolicy):
    name: ClassVar[str] = "gandiva"
    title: ClassVar[str] = "Packing by trial"

    capabilities = Capabilities(Answer.TIME_SHARES, needs=Needs.PAIRS)

    def fractions(self, snapshot: Snapshot) -> Fractions:
        return build(snapshot, variant="perf")

    def solve(self, snapshot: Snapshot, found: Fractions) -> tuple[float, Shares]:
        units = self._units(snapshot, found)
        groups = [[int(found.group_of[n]) for n in unit] for unit in units]
        gangs = np.array([found.gang[own[0]] for own in groups], dtype=float)
        share = found.capacity[None, :] / gangs.sum()
        runs = np.array([(found.throughput[own] > 0).all(axis=0) for own in groups])
        share = np.where(runs, share, 0.0)
        total = share.sum(axis=1, keepdims=True)
        share = np.where(total > 1.0, share / np.maximum(total, 1e-12), share)
        shares: Shares = {
            tuple(found.jobs[n].id for n in unit): {
                kind: float(x) for kind, x in zip(found.types, row, strict=True) if x > 0
            }
            for unit, row in zip(units, share, strict=True)
        }
        return float(sum(len(unit) == 2 for unit in units)), shares

    def _units(self, snapshot: Snapshot, found: Fractions) -> list[tuple[int, ...]]:
        """Single jobs and pairs; no jobs are paired while there are GPUs for all."""
        numbers = list(range(len(found.jobs)))
        if found.gang[found.group_of].sum() <= found.capacity.sum():
            return [(n,) for n in numbers]
        random.Random(snapshot.seed).shuffle(numbers)  # noqa: S311 - no secret
        waiting: dict[int, int] = {}
        units: list[tuple[int, ...]] = []
        for n in numbers:
            gang = int(found.gang[found.group_of[n]])
            partner = waiting.pop(gang, None)
            if partner is None:
                waiting[gang] = n
            elif self._worth_it(snapshot, found, partner, n):
                units.append((partner, n))
            else:
                units.append((partner,))
                waiting[gang] = n
        return units + [(n,) for n in waiting.values()]

    def _worth_it(self, snapshot: Snapshot, found: Fractions, one: int, other: int) -> bool:
        groups = found.group_of[one], found.group_of[other]
        jobs = found.jobs[one], found.jobs[other]
        known = colocated(snapshot, jobs[0].workload, jobs[1].workload, int(found.gang[groups[0]]))
        sums = []
        for kind, name in enumerate(found.types):
            alone = found.throughput[groups[0], kind], found.throughput[groups[1], kind]
            if name in known and all(alone):
                sums.append(known[name][0] / alone[0] + known[name][1] / alone[1])
        return bool(sums) and sum(sums) / len(sums) > self.parameters.pair_threshold
