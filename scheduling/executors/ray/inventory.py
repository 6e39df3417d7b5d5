"""Ray's table of nodes as nodes and accelerators.

The type of a node's GPUs is the label `ray.io/accelerator-type` (Ray sets it if it finds GPUs, `ray start --labels`
declares it), else a resource `accelerator_type:NAME`. `evenkeel.io/gpu-memory-mib` is the memory of each, which Ray
does not know.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from scheduling.executors.base import AcceleratorInfo, NodeInfo
from scheduling.executors.local.machine.inventory import type_name

TYPE_LABEL = "ray.io/accelerator-type"
MEMORY_LABEL = "evenkeel.io/gpu-memory-mib"
_TYPE_RESOURCE = "accelerator_type:"
UNKNOWN_TYPE = "gpu"
MAX_GPUS = 1024
_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,99}")


def nodes_of(
    table: Sequence[Mapping[str, Any]], *, emulated: bool = False
) -> dict[str, tuple[Mapping[str, Any], NodeInfo]]:
    """Living nodes with GPUs by our name: (Ray's row, node). Nodes with equal names, or names that cannot be part of a
    file name, are named by their addresses."""
    living = [row for row in table if row["alive"] and gpu_count(row) > 0]
    often = Counter(str(row["name"]) for row in living)
    found: dict[str, tuple[Mapping[str, Any], NodeInfo]] = {}
    for row in living:
        plain = often[str(row["name"])] == 1 and _NAME.fullmatch(str(row["name"]))
        name = str(row["name"] if plain else row["address"])
        found.setdefault(name, (row, _node(name, row, emulated)))
    return dict(sorted(found.items()))


def gpu_count(row: Mapping[str, Any]) -> int:
    return min(MAX_GPUS, int(row["resources"].get("GPU", 0)))


def _node(name: str, row: Mapping[str, Any], emulated: bool) -> NodeInfo:
    labels, resources = row["labels"], row["resources"]
    kind = accelerator_type(row)
    memory_mib = int(text) if (text := labels.get(MEMORY_LABEL, "")).isdecimal() and len(text) < 9 else 0
    accelerators = tuple(
        AcceleratorInfo(index, kind, f"ray-{name}-{index}", memory_mib, emulated) for index in range(gpu_count(row))
    )
    host_mib = int(resources.get("memory", 0)) >> 20
    return NodeInfo(name, accelerators, cpus=int(resources.get("CPU", 0)), memory_mib=host_mib)


def accelerator_type(row: Mapping[str, Any]) -> str:
    """Our name: `NVIDIA-TITAN-Xp` is `titan_xp`; `gpu` if neither label nor resource tells."""
    named = row["labels"].get(TYPE_LABEL) or next(
        (key[len(_TYPE_RESOURCE) :] for key in sorted(row["resources"]) if key.startswith(_TYPE_RESOURCE)), ""
    )
    return type_name(str(named).replace("-", " ").replace("_", " ")) or UNKNOWN_TYPE
