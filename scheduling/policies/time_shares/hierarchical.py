"""Weighted fairness down the project tree, and inside each project fairness or first in, first out.

Levels throughput(m, X) / throughput(m, X_equal) * gang_m rise in proportion to each job's part of its project's weight,
by water filling. A saturated node passes its weight to its siblings: at every node of the tree the weight is divided
among the children that still have a job that can rise. Source: Gavel (OSDI 2020), section 4.3.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from scheduling.domain import Entity, Job, Snapshot
from scheduling.policies.time_shares.base import FractionPolicy
from scheduling.policies.time_shares.max_min_fairness import steps_per_level
from scheduling.policies.time_shares.programs.groups import Fractions
from scheduling.policies.time_shares.programs.pricing_problem import JobClass
from scheduling.policies.time_shares.programs.ungrouping.ungroup import Shares, expand
from scheduling.policies.time_shares.programs.water_filling import Active, raise_levels
from scheduling.policies.time_shares.programs.water_levels import LevelNode
from scheduling.solvers.lp import Floats, Ints

_TOP = Entity()


@dataclass
class Node:
    """A project with jobs, or with sub-projects that have jobs. Its own jobs count as one child of weight 1."""

    weight: float
    inner: str
    children: list[Node] = field(default_factory=list)
    jobs: Ints = field(default_factory=lambda: np.empty(0, np.int64))  # numbers, in queue order


class Hierarchical(FractionPolicy):
    name: ClassVar[str] = "hierarchical"
    title: ClassVar[str] = "Hierarchical fairness"

    def solve(self, snapshot: Snapshot, found: Fractions) -> tuple[float, Shares]:
        root = tree(found.jobs, snapshot.entities)
        weights = np.array([job.weight for job in found.jobs])
        per_level = steps_per_level(found)
        limits = self.limits(snapshot)

        def rates(active: Active) -> Floats:
            rate = np.zeros(len(active))
            divide_weight(root, 1.0, rate, active, weights)
            return rate

        level, values = raise_levels(
            found, lambda: level_tree(root, found, weights), per_level, weights, rates, *limits
        )
        return float(level.min()), expand(found, values, level * per_level)


def tree(jobs: Sequence[Job], entities: Mapping[str, Entity]) -> Node:
    """The part of the project tree that has jobs, which are in queue order."""
    own: dict[str, list[int]] = defaultdict(list)
    for number, job in enumerate(jobs):
        own[job.project].append(number)
    root = Node(1.0, "fairness")
    nodes: dict[str, Node] = {}

    def node_of(key: str) -> Node:
        if key not in nodes:
            entity = entities.get(key, _TOP)
            nodes[key] = Node(entity.weight, entity.inner)
            parent = node_of(entity.parent) if entity.parent is not None else root
            parent.children.append(nodes[key])
        return nodes[key]

    for key, numbers in own.items():
        node_of(key).jobs = np.array(numbers, dtype=np.int64)
    for node in list(nodes.values()):
        if node.children and len(node.jobs):
            node.children.append(Node(1.0, node.inner, [], node.jobs))
            node.jobs = np.empty(0, np.int64)
    return root


def level_tree(root: Node, found: Fractions, weights: Floats) -> tuple[JobClass, LevelNode]:
    """The tree for water filling. Members of a project with equal speeds and weights are interchangeable, unless the
    order matters."""
    place = np.zeros(len(found.jobs))

    def number(node: Node, first: int) -> int:
        own = len(node.jobs) if node.inner == "fifo" else min(len(node.jobs), 1)
        place[node.jobs] = first + (np.arange(len(node.jobs)) if own > 1 else 0)
        first += own
        for child in node.children:
            first = number(child, first)
        return first

    number(root, 0)
    job_classes = JobClass.by(found.group_of, place, weights)

    def level_node(node: Node) -> LevelNode:
        units = job_classes.unit_of[node.jobs]
        in_order = node.inner == "fifo" and not node.children
        children = [level_node(child) for child in node.children]
        return LevelNode(node.weight, children, units if in_order else np.unique(units), in_order)

    return job_classes, level_node(root)


def _rises(node: Node, active: Active) -> bool:
    return bool(active[node.jobs].any()) or any(_rises(child, active) for child in node.children)


def divide_weight(node: Node, weight: float, rate: Floats, active: Active, weights: Floats) -> None:
    """Divide `weight` among the children of `node` that can still rise."""
    rising = [child for child in node.children if _rises(child, active)]
    total = sum(child.weight for child in rising)
    for child in rising:
        divide_weight(child, weight * child.weight / total, rate, active, weights)
    own = node.jobs[active[node.jobs]]
    if len(own):
        if node.inner == "fifo":
            own = own[:1]
        rate[own] = weight * weights[own] / weights[own].sum()
