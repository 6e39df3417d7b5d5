"""GPUs that the engine's other jobs occupy, the same on all pages as in rounds.

The engine tells how many of each node, not which ones, nor which GPUs our jobs have there. So GPUs without our jobs are
counted as occupied first. If our jobs are planned on the others, too, the engine has placed ours elsewhere (it may
choose nodes itself), and as many GPUs of the type elsewhere are occupied; unless our jobs only wait for GPUs that other
jobs still have.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from portal.jobs.models import Accelerator, Assignment, Hold, Node
from scheduling.domain import Beside
from scheduling.executors.base import Taken
from scheduling.lifecycle import State

#: By accelerator, the latest end (POSIX seconds); None: unknown.
Ends = dict[int, float | None]


@dataclass(frozen=True, slots=True)
class Place:
    """A node in service, with its GPUs in index order."""

    type: str
    gpus: tuple[int, ...]
    taken: tuple[Taken, ...]


def taken_of(node: Node) -> tuple[Taken, ...]:
    return tuple(Taken(**one) for one in node.taken)


def beside(node: Node) -> tuple[Beside, ...]:
    """CPUs and memory of the node that other jobs use."""
    rows = ((one.cpus, one.memory_mib, one.until) for one in taken_of(node))
    return tuple(Beside(1_000 * cpus, memory, until) for cpus, memory, until in rows if cpus or memory)


def taken_gpus(cluster_ids: Collection[int]) -> Ends:
    """For these clusters: one query if the engine has no other jobs."""
    shared = Node.objects.filter(cluster__in=cluster_ids).exclude(taken=[])
    found: Ends = {}
    for cluster_id in sorted(set(shared.order_by().values_list("cluster_id", flat=True))):
        occupied, waiting = _ours(cluster_id)
        found |= spread(_places(cluster_id), occupied, waiting)
    return found


def _places(cluster_id: int) -> list[Place]:
    nodes = [node for node in Node.objects.filter(cluster=cluster_id).order_by("name") if node.schedulable]
    gpus: dict[int, list[int]] = defaultdict(list)
    present = Accelerator.objects.filter(node__in=nodes, present=True).order_by("index")
    for pk, node_id in present.values_list("pk", "node_id"):
        gpus[node_id].append(pk)
    return [Place(node.accelerator_type, tuple(gpus[node.pk]), taken_of(node)) for node in nodes]


def _ours(cluster_id: int) -> tuple[set[int], set[int]]:
    """GPUs that our jobs have or will have, and those of launches that the engine has not begun."""
    occupied, waiting = set[int](), set[int]()
    for model in (Hold, Assignment):
        rows = model.objects.filter(run__job__cluster=cluster_id, during__upper_inf=True)
        for gpu, state, waits in rows.values_list("accelerator_id", "run__state", "run__engine_waits"):
            occupied.add(gpu)
            if waits and State(state) is State.LAUNCHING:
                waiting.add(gpu)
    return occupied, waiting


def spread(places: Sequence[Place], occupied: Collection[int], waiting: Collection[int]) -> Ends:
    """The last GPUs of each node without our jobs; the longest occupied ones are those that our jobs would get
    first."""
    found: Ends = {}
    elsewhere: dict[str, list[float | None]] = defaultdict(list)
    for place in places:
        ends = [one.until for one in place.taken for _ in range(one.blocks)]
        free = [gpu for gpu in reversed(place.gpus) if gpu not in occupied]
        longest = sorted(ends, key=_end, reverse=True)
        found |= dict(zip(free, longest, strict=False))
        over = longest[len(free) + sum(gpu in waiting for gpu in place.gpus) :]
        elsewhere[place.type] += over
    for place in reversed(places):
        left = elsewhere[place.type]
        for gpu in reversed(place.gpus):
            if left and gpu not in occupied and gpu not in found:
                found[gpu] = left.pop(0)
    return found


def _end(until: float | None) -> float:
    return math.inf if until is None else until


def is_overfull(node: Node, gpus: Collection[int], occupied: Collection[int]) -> bool:
    """Other jobs use so much of it that ours do not all fit. `gpus`: all GPUs of the node."""
    blocked = sum(one.blocks for one in taken_of(node))
    return blocked > 0 and blocked + sum(gpu in occupied for gpu in gpus) > len(gpus)


def overfull_nodes(cluster_id: int) -> dict[int, str]:
    """Names by id."""
    nodes = {node.pk: node for node in Node.objects.filter(cluster=cluster_id).exclude(taken=[])}
    if not nodes:
        return {}
    occupied, _ = _ours(cluster_id)
    gpus: dict[int, list[int]] = defaultdict(list)
    for pk, node_id in Accelerator.objects.filter(node__in=nodes, present=True).values_list("pk", "node_id"):
        gpus[node_id].append(pk)
    return {pk: node.name for pk, node in nodes.items() if is_overfull(node, gpus[pk], occupied)}
