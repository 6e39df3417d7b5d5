"""Third-party cluster files (CSV): Alibaba's OpenB node lists (gpu-v2023) with sn, cpu_milli, memory_mib, gpu, model;
and its PAI machines (gpu-v2020) with machine, gpu_type, cap_cpu, cap_mem (GB), cap_gpu, whose header may be missing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from scheduling.domain import Node
from scheduling.errors import InvalidInput
from scheduling.input_files import lines, opening, plain_name
from scheduling.simulator.inputs.hardware import check_size
from scheduling.simulator.inputs.trace import Cluster, read_cluster
from scheduling.simulator.readers.rows import Row, header, make_row, table

_COLUMNS = {"sn", "cpu_milli", "memory_mib", "gpu", "model"}
_MACHINES = ("machine", "gpu_type", "cap_cpu", "cap_mem", "cap_gpu")
#: Memory of one device by type name, where it is known: MiB (data sheets).
GPU_MEMORY_MIB = {
    "P100": 16_384,
    "V100M16": 16_384,
    "V100M32": 32_768,
    "T4": 16_384,
    "A10": 24_576,
    "V100": 16_384,
}


def load_cluster(path: Path) -> Cluster:
    """Evenkeel's JSON (docs/simulator.md), or a list of Alibaba's: machines without GPUs are left out, prices are 0."""
    if plain_name(path).suffix == ".json":
        return read_cluster(path)
    first = opening(path)
    if header(first) >= _COLUMNS:
        return _cluster(path, (_of_openb(row) for row in table(path)))
    if plain_name(path).suffix == ".csv" and len(first.split("\n", 1)[0].split(",")) == len(_MACHINES):
        return _cluster(path, _of_pai(path))
    return read_cluster(path)


#: Name, type, GPUs, thousandths of CPUs, MiB.
_Machine = tuple[str, str, int, int, int]


def _of_openb(row: Row) -> _Machine:
    return row.text("sn"), row.text("model"), row.integer("gpu"), row.integer("cpu_milli"), row.integer("memory_mib")


def _of_pai(path: Path) -> Iterator[_Machine]:
    for number, text in lines(path):
        fields = text.split(",")
        if not text.strip() or (number == 1 and fields[0].strip() == _MACHINES[0]):
            continue
        row = make_row(path, number, _MACHINES, fields)
        cpu, memory = round(1_000 * row.number("cap_cpu")), round(1_024 * row.number("cap_mem"))
        yield row.text("machine"), row.text("gpu_type"), row.integer("cap_gpu"), cpu, memory


def _cluster(path: Path, machines: Iterable[_Machine]) -> Cluster:
    nodes: list[Node] = []
    gpus = 0
    for name, kind, size, cpu, memory in machines:
        if size:
            check_size(path, gpus + size)
            ids = tuple(range(gpus, gpus + size))
            room = GPU_MEMORY_MIB.get(kind)
            nodes.append(Node(name, kind, ids, cpu_milli=cpu, memory_mib=memory, gpu_memory_mib=room))
            gpus += size
    if not nodes:
        raise InvalidInput(f"{path}: no node has a GPU")
    return Cluster(tuple(nodes), dict.fromkeys({node.type for node in nodes}, 0.0))
