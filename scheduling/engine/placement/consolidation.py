"""Consolidates gangs that span nodes, if that saves more time than the restarts cost.

A gang moves to the node on which it needs the fewest occupied GPUs. It takes free GPUs first, then those of single-GPU
jobs, which get the GPUs that the gang leaves on other nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from scheduling.engine.constraints.host_resources import requests_host_resources
from scheduling.engine.placement.choose_gpus import Board, Request

#: The time saved must be at least this many times the cost of the restarts.
_MARGIN = 2.0


def consolidate_gangs(board: Board, requests: Sequence[Request], placed: dict[str, tuple[int, ...]]) -> None:
    """Change `placed`, the accelerators of jobs; the board has the free ones. Jobs that request CPUs or memory are not
    moved."""
    requests = [request for request in requests if not requests_host_resources(request.job)]
    scattered = [request for request in requests if _lost_s(board, request, placed) > 0]
    for request in sorted(scattered, key=lambda one: (-_lost_s(board, one, placed), one.job.id)):
        singles = _singles(board, requests, placed)
        for node in _nodes(board, request, placed, singles):
            if _move(board, request, placed, node, singles.get(node, [])):
                break


def _lost_s(board: Board, request: Request, placed: Mapping[str, tuple[int, ...]]) -> float:
    """How much later the job ends because its gang spans nodes."""
    gpus, curve = placed.get(request.job.id, ()), request.job.curves.get(request.gang.type)
    if curve is None or len({board.node_of[gpu] for gpu in gpus}) < 2:
        return 0.0
    speed, factor = curve.at(len(gpus)), curve.spread_at(len(gpus))
    if speed <= 0 or not 0 < factor < 1:
        return 0.0
    return request.job.remaining_steps / speed * (1.0 / factor - 1.0)


def _singles(
    board: Board, requests: Sequence[Request], placed: Mapping[str, tuple[int, ...]]
) -> dict[int, list[Request]]:
    """Single-GPU jobs by node, those first that lose nothing by moving."""
    found: dict[int, list[Request]] = {}
    for request in sorted(requests, key=lambda one: (bool(one.held), one.job.id)):
        gpus = placed.get(request.job.id, ())
        if len(gpus) == 1:
            found.setdefault(board.node_of[gpus[0]], []).append(request)
    return found


def _nodes(
    board: Board, request: Request, placed: Mapping[str, tuple[int, ...]], singles: Mapping[int, list[Request]]
) -> list[int]:
    """Nodes that can hold the whole gang, those first from which the fewest jobs must move."""
    gpus = placed[request.job.id]
    found = []
    for index, node in enumerate(board.nodes):
        if node.type != request.gang.type:
            continue
        room = len(board.free[index]) + sum(board.node_of[gpu] == index for gpu in gpus)
        missing = max(0, len(gpus) - room)
        if missing <= len(singles.get(index, [])) and len(node.gpu_ids) >= len(gpus):
            found.append((missing, index))
    return [index for _, index in sorted(found)]


def _move(
    board: Board, request: Request, placed: dict[str, tuple[int, ...]], node: int, singles: Sequence[Request]
) -> bool:
    """Move the gang onto this node; False if it does not fit or does not pay off."""
    gpus, key = placed[request.job.id], request.job.id
    own = [gpu for gpu in gpus if board.node_of[gpu] == node]
    away = [gpu for gpu in gpus if board.node_of[gpu] != node]
    free = [gpu for gpu in board.free[node] if gpu not in request.job.excluded_gpus][: len(away)]
    leaving = [one for one in singles if placed[one.job.id][0] not in request.job.excluded_gpus]
    leaving = leaving[: len(away) - len(free)]
    if len(free) + len(leaving) < len(away):
        return False
    targets = dict(zip((one.job.id for one in leaving), away, strict=False))
    if any(targets[one.job.id] in one.job.excluded_gpus for one in leaving):
        return False
    moved = [one for one in (request, *leaving) if one.held]
    if _lost_s(board, request, placed) <= _MARGIN * sum(one.job.restart_cost_s for one in moved):
        return False
    taken = [placed[one.job.id][0] for one in leaving]
    board.take(free)
    board.give(away[len(leaving) :])
    placed[key] = tuple(sorted((*own, *free, *taken)))
    for job, gpu in targets.items():
        placed[job] = (gpu,)
    return True
