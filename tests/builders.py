"""Builders of domain values for tests: a call states only what matters."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

from scheduling.domain import Curve, Gang, Job, Node, Snapshot
from scheduling.lifecycle import HOLDING, State

_numbers = count(1)


def make_curve(*steps_per_s: float, spread_factor: float = 1.0, source: str = "catalogue") -> Curve:
    """f on 1, 2, ... GPUs; without values one that scales perfectly to 64."""
    return Curve(tuple(steps_per_s) or tuple(float(n) for n in range(1, 65)), source, spread_factor)


def make_nodes(*sizes: int, type: str = "titan_xp", first_id: int = 0, **changes: Any) -> tuple[Node, ...]:
    """Nodes of the given sizes with consecutive accelerator ids."""
    nodes, next_id = [], first_id
    for index, size in enumerate(sizes):
        name = f"{type}-{index}"
        nodes.append(Node(name, type, tuple(range(next_id, next_id + size)), **changes))
        next_id += size
    return tuple(nodes)


def make_job(
    *,
    gpus: int | None = None,
    holds: Sequence[int] = (),
    type: str = "titan_xp",
    curve: Curve | None = None,
    **changes: Any,
) -> Job:
    """A queued job; `holds` makes it RUNNING on those accelerators, `gpus` fixes minimum and maximum."""
    number = changes.pop("number", None) or next(_numbers)
    state = State.RUNNING if holds else State.WAITING_FOR_INITIAL_RESOURCE
    values: dict[str, Any] = {
        "id": f"job-{number:06d}",
        "number": number,
        "project": "speech",
        "state": state,
        "submitted_at": number / 1000,  # in order, and before snapshots are taken
        "curves": {type: curve or make_curve()},
        "remaining_steps": 1000.0,
        "gpu_ids": tuple(holds),
        "gang": Gang(type, len(holds)) if holds else None,
        "has_trained": bool(holds),
    }
    if gpus is not None:
        values |= {"min_gpus": gpus, "max_gpus": gpus}
    values |= changes
    if values["state"] in HOLDING and not values["gpu_ids"]:
        raise ValueError("a job that holds GPUs needs `holds`")
    return Job(**values)


def make_snapshot(*jobs: Job, nodes: Sequence[Node] | int = 6, **changes: Any) -> Snapshot:
    """A snapshot of one node with so many GPUs, or of the given nodes, at time 1000."""
    given = make_nodes(nodes) if isinstance(nodes, int) else tuple(nodes)
    return Snapshot(**{"now": 1000.0, "nodes": given, "jobs": jobs, **changes})
