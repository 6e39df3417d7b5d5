"""Counts to concrete accelerators: keep what is held, one node before several, few moves, little fragmentation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from scheduling.domain import Gang, Job, Node


@dataclass(frozen=True, slots=True)
class Request:
    """One job's gang to place. `held` is what it has now and may keep."""

    job: Job
    gang: Gang
    held: tuple[int, ...] = ()
    least: int = 0  # down to which count it may be laid out; 0: the gang or nothing

    @property
    def keeps(self) -> bool:
        return len(self.held) == self.gang.count


class Board:
    """Free accelerators per node while a plan is laid out; deterministic, no randomness."""

    def __init__(self, nodes: Iterable[Node], taken: Iterable[int] = ()) -> None:
        gone = set(taken)
        self.nodes = [node for node in nodes if node.schedulable and not node.lost]
        self.free = {node.name: [gpu for gpu in node.gpu_ids if gpu not in gone] for node in self.nodes}
        self.position = {node.name: index for index, node in enumerate(self.nodes)}
        self.node_of = {gpu: node.name for node in self.nodes for gpu in node.gpu_ids}

    def take(self, gpus: Iterable[int]) -> None:
        for gpu in gpus:
            self.free[self.node_of[gpu]].remove(gpu)

    def give(self, gpus: Iterable[int]) -> None:
        for gpu in gpus:
            name = self.node_of[gpu]
            self.free[name] = sorted((*self.free[name], gpu))

    def place(self, request: Request, *, multi_node: bool = True) -> tuple[int, ...] | None:
        """Accelerators for the request, taken off the board; None where it cannot be laid out."""
        wanted = request.gang.count
        room = self._room(request)
        held = self._by_node(request.held)
        chosen: list[int] | None
        if wanted < len(request.held):
            chosen = self._shrink(held, wanted)
        else:
            chosen = self._grow_in_place(held, room, wanted) or self._on_one_node(request, room, wanted)
            if chosen is None and multi_node:
                chosen = self._spread(held, room, wanted)
        if chosen is None or len(chosen) != wanted:
            return None
        gpus = self._sorted(chosen)
        self.take(gpus)
        return gpus

    def _room(self, request: Request) -> dict[str, list[int]]:
        """Per node of the type what the job may use; its own held GPUs are on the board by now."""
        bad = request.job.excluded_gpus - set(request.held)
        return {
            node.name: [gpu for gpu in self.free[node.name] if gpu not in bad]
            for node in self.nodes
            if node.type == request.gang.type
        }

    def _by_node(self, gpus: Iterable[int]) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for gpu in gpus:
            found.setdefault(self.node_of[gpu], []).append(gpu)
        return found

    def _grow_in_place(
        self, held: Mapping[str, list[int]], room: Mapping[str, list[int]], wanted: int
    ) -> list[int] | None:
        if len(held) != 1:
            return None
        ((name, own),) = held.items()
        rest = [gpu for gpu in room[name] if gpu not in own]
        return own + _tight(own, rest, wanted - len(own)) if len(own) + len(rest) >= wanted else None

    def _on_one_node(self, request: Request, room: Mapping[str, list[int]], wanted: int) -> list[int] | None:
        """Best fit: the node that is left with the fewest free GPUs. A job that holds GPUs leaves them
        only where spanning nodes would slow it down."""
        curve = request.job.curves.get(request.gang.type)
        if request.held and (curve is None or curve.spread_factor >= 1.0):
            return None
        fits = [name for name, gpus in room.items() if len(gpus) >= wanted]
        best = min(fits, key=lambda name: (len(room[name]), self._position(name)), default=None)
        return room[best][:wanted] if best is not None else None

    def _spread(self, held: Mapping[str, list[int]], room: Mapping[str, list[int]], wanted: int) -> list[int]:
        """Its own GPUs, then the nodes with most room, so that the gang spans few; the last one by best fit."""
        chosen = [gpu for gpus in held.values() for gpu in gpus]
        rest = {name: [gpu for gpu in gpus if gpu not in chosen] for name, gpus in room.items()}
        for name in sorted(held, key=lambda name: (-len(rest[name]), self._position(name))):
            chosen += rest.pop(name)[: wanted - len(chosen)]
        while len(chosen) < wanted and any(rest.values()):
            missing = wanted - len(chosen)
            enough = [name for name in rest if len(rest[name]) >= missing]
            if enough:
                name = min(enough, key=lambda name: (len(rest[name]), self._position(name)))
            else:
                name = max(rest, key=lambda name: (len(rest[name]), -self._position(name)))
            chosen += rest.pop(name)[:missing]
        return chosen

    def _shrink(self, held: Mapping[str, list[int]], wanted: int) -> list[int]:
        """Leave the node where least is held first; on one node keep neighbours."""
        chosen: list[int] = []
        for name in sorted(held, key=lambda name: (-len(held[name]), self._position(name))):
            chosen += sorted(held[name])[: wanted - len(chosen)]
        return chosen

    def _position(self, name: str) -> int:
        return self.position[name]

    def _sorted(self, gpus: Sequence[int]) -> tuple[int, ...]:
        return tuple(sorted(gpus, key=lambda gpu: (self.position[self.node_of[gpu]], gpu)))


def _tight(own: Sequence[int], rest: Sequence[int], more: int) -> list[int]:
    """The free GPUs nearest to those already held."""
    return sorted(rest, key=lambda gpu: (min(abs(gpu - mine) for mine in own), gpu))[:more]


def lay_out(board: Board, requests: Sequence[Request], *, multi_node: bool = True) -> dict[str, tuple[int, ...]]:
    """Accelerators per job, for those that could be laid out. `requests` are in queue order; held GPUs
    must not be on the board yet.

    Unchanged jobs first (they do not move), then those that shrink (what they leave becomes free), then
    the rest by size, largest first, so that large gangs find whole nodes.
    """
    placed = {request.job.id: request.held for request in requests if request.keeps}
    moving = [request for request in requests if not request.keeps]
    for request in moving:
        board.give(request.held)
    shrinking = [request for request in moving if request.gang.count < len(request.held)]
    for request in shrinking:
        _put(placed, board, request, multi_node)
    growing = [request for request in moving if request.held and request not in shrinking]
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
    """Lay the gang out, smaller where it does not fit; a job that cannot grow keeps what it holds."""
    least = max(request.least or request.gang.count, len(request.held) + 1)
    if request.gang.count < len(request.held):
        least = request.gang.count
    for count in range(request.gang.count, least - 1, -1):
        smaller = replace(request, gang=replace(request.gang, count=count))
        gpus = board.place(smaller, multi_node=multi_node)
        if gpus is not None:
            placed[request.job.id] = gpus
            return
    if request.held:
        board.take(request.held)
        placed[request.job.id] = request.held
