"""Cluster files of others: Alibaba's OpenB node lists (gpu-v2023), CSV with sn, cpu_milli, memory_mib, gpu, model."""

from __future__ import annotations

from pathlib import Path

from scheduling.domain import Node
from scheduling.errors import InvalidInput
from scheduling.simulator.readers._rows import header, opening, table
from scheduling.simulator.trace import Cluster, read_cluster

_COLUMNS = {"sn", "cpu_milli", "memory_mib", "gpu", "model"}
#: Of the devices' types by name, where they are known: MiB of one (data sheets).
GPU_MEMORY_MIB = {
    "P100": 16_384,
    "V100M16": 16_384,
    "V100M32": 32_768,
    "T4": 16_384,
    "A10": 24_576,
}


def load_cluster(path: Path) -> Cluster:
    """Our own JSON (docs/simulator.md), or an OpenB node list: nodes without GPUs are left out, and prices are 0."""
    if path.suffix == ".json" or not header(opening(path)) >= _COLUMNS:
        return read_cluster(path)
    nodes: list[Node] = []
    gpus = 0
    for row in table(path):
        size, kind = row.integer("gpu"), row.text("model")
        if size:
            nodes.append(
                Node(
                    row.text("sn"),
                    kind,
                    tuple(range(gpus, gpus + size)),
                    cpu_milli=row.integer("cpu_milli"),
                    memory_mib=row.integer("memory_mib"),
                    gpu_memory_mib=GPU_MEMORY_MIB.get(kind),
                )
            )
            gpus += size
    if not nodes:
        raise InvalidInput(f"{path}: no node has a GPU")
    return Cluster(tuple(nodes), dict.fromkeys({node.type for node in nodes}, 0.0))
