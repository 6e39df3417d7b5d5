"""The part of a cluster that a round can change if the policy serves the queue strictly in order.

Under such a policy (`Policy.strict_order`) running jobs keep their GPUs, and no job starts before those ahead of it. A
round therefore needs only the head of the queue and the nodes that placement can choose. Placement takes the tightest
node with room, the first of equals, so of the nodes with equally many free GPUs only the first few can be chosen. The
snapshot omits the rest of the cluster except for nodes that preserve each type's size, as far as it matters, and its
largest node. The plan is the same as that of the whole snapshot (tests/scheduling/simulator/test_simulator_excerpt.py);
only the reasons mention fewer free GPUs.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from itertools import islice

from scheduling.domain import Node
from scheduling.simulator.run import Run

Key = tuple[int, float, int, str]
#: Jobs at the head of the queue that a round sees first: the first, and the one that it blocks.
FIRST = 2
_EXCERPTS = 1_024


class Queue:
    """Queued runs in queue order (priority, submission, number)."""

    def __init__(self) -> None:
        self._keys: list[Key] = []
        self._runs: dict[Key, Run] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, run: Run) -> None:
        insort(self._keys, _key(run))
        self._runs[_key(run)] = run

    def remove(self, run: Run) -> None:
        key = _key(run)
        if self._runs.pop(key, None) is not None:
            del self._keys[bisect_left(self._keys, key)]

    def head(self, count: int) -> list[Run]:
        return [self._runs[key] for key in islice(self._keys, count)]

    @staticmethod
    def is_before(run: Run, other: Run) -> bool:
        return _key(run) < _key(other)


def _key(run: Run) -> Key:
    job = run.job
    return (-job.priority, job.arrival_s, job.number, job.id)


class Floor:
    """Free GPUs per node, and per type the nodes with each number of them."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.set_nodes(nodes, frozenset())

    def set_nodes(self, nodes: Sequence[Node], taken: Iterable[int]) -> None:
        """`nodes` are all nodes in service."""
        self.nodes = tuple(node for node in nodes if node.schedulable and not node.lost and node.gpu_ids)
        self.node_of = {gpu: index for index, node in enumerate(self.nodes) for gpu in node.gpu_ids}
        self.free = [len(node.gpu_ids) for node in self.nodes]
        self.free_gpus = sum(self.free)
        self.free_of: dict[str, int] = {}
        for node in self.nodes:
            self.free_of[node.type] = self.free_of.get(node.type, 0) + len(node.gpu_ids)
        self.taken: list[set[int]] = [set() for _ in self.nodes]
        self.levels: dict[str, dict[int, list[int]]] = {}
        self.members: dict[str, list[int]] = {}
        for index, node in enumerate(self.nodes):
            self.levels.setdefault(node.type, {}).setdefault(len(node.gpu_ids), []).append(index)
            self.members.setdefault(node.type, []).append(index)
        self.largest = {
            kind: max(indexes, key=lambda index: (len(self.nodes[index].gpu_ids), -index))
            for kind, indexes in self.members.items()
        }
        self._nodes_of: dict[tuple[int, ...], tuple[Node, ...]] = {}  # one object each, since memos compare by identity
        self.take(taken)

    def take(self, gpus: Iterable[int]) -> None:
        for index, ids in self._by_node(gpus).items():
            self.taken[index] |= ids
            self._file(index)

    def give(self, gpus: Iterable[int]) -> None:
        for index, ids in self._by_node(gpus).items():
            self.taken[index] -= ids
            self._file(index)

    def _by_node(self, gpus: Iterable[int]) -> dict[int, set[int]]:
        found: dict[int, set[int]] = {}
        for gpu in gpus:
            index = self.node_of.get(gpu)
            if index is not None:
                found.setdefault(index, set()).add(gpu)
        return found

    def _file(self, index: int) -> None:
        node, before = self.nodes[index], self.free[index]
        now = self.free[index] = len(node.gpu_ids) - len(self.taken[index])
        self.free_gpus += now - before
        self.free_of[node.type] += now - before
        levels = self.levels[node.type]
        old = levels[before]
        del old[bisect_left(old, index)]
        insort(levels.setdefault(now, []), index)

    def excerpt(self, gangs: Sequence[int]) -> tuple[tuple[Node, ...], frozenset[int]]:
        """Nodes, and which of their GPUs are taken, for gangs of at most these sizes."""
        chosen: set[int] = set()
        for kind, levels in self.levels.items():
            for free, indexes in levels.items():
                if free:
                    chosen.update(indexes[: _picks(gangs, free)])
            self._keep_size(kind, max(gangs, default=0), chosen)
        picked = tuple(sorted(chosen))
        taken = frozenset[int]().union(*[self.taken[index] for index in picked])
        if len(self._nodes_of) >= _EXCERPTS:
            self._nodes_of.clear()
        nodes = self._nodes_of.setdefault(picked, tuple([self.nodes[index] for index in picked]))
        return nodes, taken

    def _keep_size(self, kind: str, reach: int, chosen: set[int]) -> None:
        """The largest node, and nodes until the type has its full size, or the size that the gangs need."""
        chosen.add(self.largest[kind])
        size = sum(len(self.nodes[index].gpu_ids) for index in chosen if self.nodes[index].type == kind)
        for index in self.members[kind]:
            if size >= reach:
                return
            if index not in chosen:
                chosen.add(index)
                size += len(self.nodes[index].gpu_ids)


def _picks(gangs: Sequence[int], free: int) -> int:
    """How many nodes with this many free GPUs can be chosen for the gangs, at most."""
    return sum(-(-gang // free) for gang in gangs)


def most_gpus(run: Run) -> int:
    """The largest gang that the run may get."""
    job = run.job
    if job.max_gpus:
        return job.max_gpus
    useful = [next((n for n, value in enumerate(c.steps_per_s, 1) if value > 0), 1) for c in job.curves.values()]
    return max(job.min_gpus, *useful)
