"""Turns counts into accelerators: keep what is held, prefer one node to several, move and fragment little."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush

from scheduling.capacity.memo import cluster_index
from scheduling.domain import Gang, Job, Node, NodeBounds
from scheduling.engine.constraints.host_resources import FreeHostResources, requests_host_resources


@dataclass(frozen=True, slots=True)
class Request:
    """One job's gang to place. `held`: its present GPUs, which it may keep."""

    job: Job
    gang: Gang
    held: tuple[int, ...] = ()
    least: int = 0  # smallest count to which it may be cut; 0: the whole gang or nothing

    @property
    def keeps(self) -> bool:
        return len(self.held) == self.gang.count


class Board:
    """Free accelerators per node while a plan is laid out; deterministic, no randomness.

    Per type and number of free GPUs a heap of nodes, with entries that are stale once the number has changed, finds the
    tightest node with room for n GPUs without a search through all nodes.
    """

    def __init__(self, nodes: Iterable[Node], taken: Iterable[int] = (), staying: Iterable[Job] | None = None) -> None:
        """`staying`: jobs that keep their GPUs, and so their CPUs and memory; None: CPUs and memory are ignored."""
        found = cluster_index(tuple(nodes))
        self.nodes, self.node_of = found.usable, found.node_of
        self.free: list[list[int]] = [[] for _ in self.nodes]
        for gpu in sorted(found.type_of.keys() - frozenset(taken)):
            self.free[self.node_of[gpu]].append(gpu)
        self.hosts = None if staying is None else FreeHostResources(self.nodes, self.node_of, staying)
        self.largest = max((len(node.gpu_ids) for node in self.nodes), default=0)
        self.levels: dict[str, list[list[int]]] = {kind: [[] for _ in range(self.largest + 1)] for kind in found.types}
        for index, (node, free) in enumerate(zip(self.nodes, self.free, strict=True)):
            if free:
                self.levels[node.type][len(free)].append(index)  # ascending, so each is a heap

    def take(self, gpus: Sequence[int]) -> None:
        for gpu in gpus:
            self.free[self.node_of[gpu]].remove(gpu)
        self._file(*{self.node_of[gpu] for gpu in gpus})

    def give(self, gpus: Sequence[int]) -> None:
        for gpu in gpus:
            insort(self.free[self.node_of[gpu]], gpu)
        self._file(*{self.node_of[gpu] for gpu in gpus})

    def vacate(self, jobs: Iterable[Job]) -> None:
        """Free all GPUs of these jobs."""
        for job in jobs:
            self.give(job.gpu_ids)
            if self.hosts is not None:
                self.hosts.move(job, ())

    def occupy(self, jobs: Iterable[Job]) -> None:
        """Undo `vacate`."""
        for job in jobs:
            self.take(job.gpu_ids)
            if self.hosts is not None:
                self.hosts.move(job, job.gpu_ids)

    def _file(self, *indexes: int) -> None:
        for index in indexes:
            heappush(self.levels[self.nodes[index].type][len(self.free[index])], index)

    def _node_with(self, kind: str, free: Iterable[int]) -> int | None:
        """The first node with one of the numbers `free` of free GPUs, in the order of `free`."""
        for count in free:
            heap = self.levels[kind][count]
            while heap and len(self.free[heap[0]]) != count:
                heappop(heap)
            if heap:
                return heap[0]
        return None

    def place(self, request: Request, *, multi_node: bool = True) -> tuple[int, ...] | None:
        """Take accelerators for the request off the board; None if it does not fit.

        The job's present GPUs must be free on the board: it may keep them.
        """
        if request.gang.type not in self.levels:
            return None
        bad = request.job.excluded_gpus - set(request.held)
        hidden = [gpu for gpu in sorted(bad) if gpu in self.node_of and gpu in self.free[self.node_of[gpu]]]
        hidden += self._crowded(request, hidden)
        self.take(hidden)
        chosen = self._choose(request, multi_node)
        if chosen is not None:
            self.take(chosen)
            if self.hosts is not None:
                self.hosts.move(request.job, chosen)
        self.give(hidden)
        return None if chosen is None else tuple(sorted(chosen, key=lambda gpu: (self.node_of[gpu], gpu)))

    def _crowded(self, request: Request, hidden: Sequence[int]) -> list[int]:
        """Free GPUs on nodes with too few CPUs or too little memory for the job."""
        hosts = self.hosts
        if hosts is None or not requests_host_resources(request.job):
            return []
        nodes = [n for n, node in enumerate(self.nodes) if node.type == request.gang.type and self.free[n]]
        full = [n for n in nodes if not hosts.has_room(request.job, n)]
        return [gpu for n in full for gpu in self.free[n] if gpu not in hidden]

    def _choose(self, request: Request, multi_node: bool) -> list[int] | None:
        wanted, held, bounds = request.gang.count, self._by_node(request.held), request.job.on_nodes
        if bounds is not None and (bounds.least > 1 or bounds.of_each is not None):
            least = bounds.least if bounds.of_each is None else max(bounds.least, -(-wanted // bounds.of_each))
            return self._wide(request, held, least, bounds) if multi_node or least == 1 else None
        chosen = self._freely(request, held, wanted, multi_node and (bounds is None or bounds.most != 1))
        if chosen is None or bounds is None or bounds.allow([len(gpus) for gpus in self._by_node(chosen).values()]):
            return chosen
        return None

    def _freely(
        self, request: Request, held: Mapping[int, list[int]], wanted: int, multi_node: bool
    ) -> list[int] | None:
        if wanted < len(request.held):
            return _shrink(held, wanted)
        chosen = self._grow_in_place(held, wanted)
        # A running job leaves its GPUs only if spanning nodes would slow it down.
        curve = request.job.curves.get(request.gang.type)
        if chosen is None and (not held or (curve is not None and curve.spread_at(wanted) < 1.0)):
            chosen = self._on_one_node(request.gang.type, wanted)
        if chosen is None and multi_node:
            chosen = self._spread(request.gang.type, held, wanted)
        return chosen

    def _wide(
        self, request: Request, held: Mapping[int, list[int]], least: int, bounds: NodeBounds
    ) -> list[int] | None:
        """Span at least that many nodes: one GPU of each first, present nodes before those with most room."""
        kind, wanted = request.gang.type, request.gang.count
        nodes = [n for n, node in enumerate(self.nodes) if node.type == kind and self.free[n]]
        nodes.sort(key=lambda n: (-len(held.get(n, ())), -len(self.free[n]), n))
        own = {gpu for gpus in held.values() for gpu in gpus}
        order = {
            n: sorted(self.free[n], key=lambda gpu: (gpu not in own, gpu))[: bounds.hold(len(self.free[n]))]
            for n in nodes[: bounds.most]
        }
        if len(order) < least or wanted < least:
            return None
        first = [gpus[0] for gpus in list(order.values())[:least]]
        rest = [gpu for gpus in order.values() for gpu in gpus if gpu not in first]
        rest.sort(key=lambda gpu: gpu not in own)
        return [*first, *rest[: wanted - least]] if len(first) + len(rest) >= wanted else None

    def _by_node(self, gpus: Iterable[int]) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for gpu in gpus:
            found.setdefault(self.node_of[gpu], []).append(gpu)
        return found

    def _grow_in_place(self, held: Mapping[int, list[int]], wanted: int) -> list[int] | None:
        if len(held) != 1:
            return None
        ((index, own),) = held.items()
        rest = [gpu for gpu in self.free[index] if gpu not in own]
        return own + _tight(own, rest, wanted - len(own)) if len(own) + len(rest) >= wanted else None

    def _on_one_node(self, kind: str, wanted: int) -> list[int] | None:
        """Best fit: the node with the fewest free GPUs afterwards."""
        index = self._node_with(kind, range(wanted, self.largest + 1))
        return self.free[index][:wanted] if index is not None else None

    def _spread(self, kind: str, held: Mapping[int, list[int]], wanted: int) -> list[int] | None:
        """Use the job's present GPUs and nodes, then those with most room, so that the gang spans few; the last by best
        fit."""
        chosen = [gpu for gpus in held.values() for gpu in gpus]
        for index in sorted(held, key=lambda index: (len(held[index]) - len(self.free[index]), index)):
            rest = [gpu for gpu in self.free[index] if gpu not in chosen]
            chosen += rest[: wanted - len(chosen)]
        self.take(chosen)
        while len(chosen) < wanted:
            missing = wanted - len(chosen)
            fits, fewer = range(missing, self.largest + 1), range(min(missing, self.largest), 0, -1)
            node = self._node_with(kind, (*fits, *fewer))
            if node is None:
                break
            part = self.free[node][:missing]
            self.take(part)
            chosen += part
        self.give(chosen)
        return chosen if len(chosen) == wanted else None


def _shrink(held: Mapping[int, list[int]], wanted: int) -> list[int]:
    """Leave the node with the fewest of the job's GPUs first; on one node keep the lower half, so that free GPUs are
    together."""
    chosen: list[int] = []
    for index in sorted(held, key=lambda index: (-len(held[index]), index)):
        chosen += sorted(held[index])[: wanted - len(chosen)]
    return chosen


def _tight(own: Sequence[int], rest: Sequence[int], more: int) -> list[int]:
    """The free GPUs nearest to those that the job holds."""
    return sorted(rest, key=lambda gpu: (min(abs(gpu - mine) for mine in own), gpu))[:more]


def lay_out(board: Board, requests: Sequence[Request], *, multi_node: bool = True) -> dict[str, tuple[int, ...]]:
    """Accelerators by job, for those that fit. `requests` are in queue order; held GPUs must not be on the board yet.

    Unchanged jobs come first (they do not move), then jobs that shrink (they free GPUs), then the rest, largest first,
    so that large gangs find whole nodes.
    """
    placed = {request.job.id: request.held for request in requests if request.keeps}
    moving = [request for request in requests if not request.keeps]
    for request in moving:
        board.give(request.held)
    shrinking = [request for request in moving if request.gang.count < len(request.held)]
    for request in shrinking:
        _put(placed, board, request, multi_node)
    growing = [request for request in moving if 0 < len(request.held) < request.gang.count]
    reserved = {request.job.id: request.held for request in growing}
    for held in reserved.values():
        board.take(held)
    for request in sorted(growing, key=lambda request: -request.gang.count):
        board.give(reserved.pop(request.job.id))
        _put(placed, board, request, multi_node)
    starting = [request for request in moving if not request.held]
    for request in sorted(starting, key=lambda request: -request.gang.count):
        _put(placed, board, request, multi_node)
    return placed


def _put(placed: dict[str, tuple[int, ...]], board: Board, request: Request, multi_node: bool) -> None:
    """Place the gang, smaller if it does not fit; a job that cannot grow keeps its GPUs."""
    least = max(request.least or request.gang.count, len(request.held) + 1)
    if request.gang.count < len(request.held):
        least = request.gang.count
    wanted = request.gang.count
    for count in range(wanted, least - 1, -1):
        smaller = request if count == wanted else replace(request, gang=replace(request.gang, count=count))
        gpus = board.place(smaller, multi_node=multi_node)
        if gpus is not None:
            placed[request.job.id] = gpus
            return
    if request.held:
        board.take(request.held)
        placed[request.job.id] = request.held
