"""Limits of partitions, from `scontrol show partition` and, for cluster-wide ones, `scontrol show config`."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from scheduling.errors import ExecutorError
from scheduling.executors.base import NodeInfo
from scheduling.executors.slurm.commands import Commands, limit_seconds

_KNOWN_FOR_S = 120.0
T = TypeVar("T", int, float)
_FIELD = re.compile(r"(\w+)=(\S*)")


@dataclass(frozen=True, slots=True)
class Partition:
    """None: no such limit. Memory in MiB; `cpus_per_node` is for all jobs of the partition together."""

    name: str = ""
    is_default: bool = False
    max_time_s: float | None = None
    default_time_s: float | None = None
    max_nodes: int | None = None
    cpus_per_node: int | None = None
    memory_per_node_mib: int | None = None
    memory_per_cpu_mib: int | None = None
    min_nodes: int = 1
    qos: str = ""


NO_LIMITS = Partition()


def parse_partitions(text: str, config: str = "") -> list[Partition]:
    """`config`: if a partition has no memory limit, the cluster's applies."""
    whole = {name: _count(configured(config, name)) for name in ("MaxMemPerNode", "MaxMemPerCPU")}
    lines = (dict(_FIELD.findall(line)) for line in text.splitlines() if "PartitionName=" in line)
    return [_partition(fields, whole) for fields in lines]


def _partition(fields: Mapping[str, str], whole: Mapping[str, int | None]) -> Partition:
    per_node, per_cpu = (_count(fields.get(name, "")) for name in ("MaxMemPerNode", "MaxMemPerCPU"))
    if per_node is None and per_cpu is None:
        per_node, per_cpu = whole["MaxMemPerNode"], whole["MaxMemPerCPU"]
    return Partition(
        name=fields["PartitionName"],
        is_default=fields.get("Default") == "YES",
        max_time_s=limit_seconds(fields.get("MaxTime", "")),
        default_time_s=limit_seconds(fields.get("DefaultTime", "")),
        max_nodes=_count(fields.get("MaxNodes", "")),
        cpus_per_node=_count(fields.get("MaxCPUsPerNode", "")),
        memory_per_node_mib=per_node,
        memory_per_cpu_mib=per_cpu,
        min_nodes=_count(fields.get("MinNodes", "")) or 1,
        qos=fields.get("QoS", "").replace("N/A", ""),
    )


def chosen(partitions: Iterable[Partition], names: str) -> Partition:
    """The one with this name, or the default one. For several, of which Slurm uses one, anything that one of them
    allows."""
    wanted = names.split(",") if names else []
    found = [one for one in partitions if (one.name in wanted if wanted else one.is_default)]
    if len(found) < 2:
        return found[0] if found else NO_LIMITS
    return Partition(
        name=names,
        max_time_s=_most(one.max_time_s for one in found),
        default_time_s=_most(one.default_time_s for one in found),
        max_nodes=_most(one.max_nodes for one in found),
        cpus_per_node=_most(one.cpus_per_node for one in found),
        memory_per_node_mib=_most(one.memory_per_node_mib for one in found),
        memory_per_cpu_mib=_most(one.memory_per_cpu_mib for one in found),
        min_nodes=min(one.min_nodes for one in found),
    )


def _most(values: Iterable[T | None]) -> T | None:
    known = list(values)
    return None if any(value is None for value in known) else max(value for value in known if value is not None)


class KnownPartitions:
    """Read now and then."""

    def __init__(self, commands: Commands) -> None:
        self._commands, self._until, self._known = commands, float("-inf"), list[Partition]()
        self._config = ""

    def of(self, names: str) -> Partition:
        return chosen(self.listed()[0], names)

    def listed(self) -> tuple[list[Partition], str]:
        """All of them, and Slurm's configuration."""
        if time.monotonic() >= self._until:
            shown, self._config = self._commands.recalling_settings().partitions()
            self._known = parse_partitions(shown, self._config)
            self._until = time.monotonic() + _KNOWN_FOR_S
        return self._known, self._config


def within(node: NodeInfo, partition: Partition) -> NodeInfo:
    """The part of the node that jobs of the partition have together."""
    if partition.cpus_per_node is None or partition.cpus_per_node >= node.cpus:
        return node
    return replace(node, cpus=partition.cpus_per_node)


def most_memory_mib(share_mib: int, cpus: int, partition: Partition) -> int:
    """The memory of a node for a job that requests none."""
    per_cpu = partition.memory_per_cpu_mib
    bounds = (partition.memory_per_node_mib, None if per_cpu is None else per_cpu * cpus)
    return min([share_mib, *(bound for bound in bounds if bound is not None)])


def check_nodes(count: int, partition: Partition) -> None:
    """Raises ExecutorError if the job would wait in Slurm forever."""
    if partition.max_nodes is not None and count > partition.max_nodes:
        text = (
            f"its GPUs are on {count} nodes, and Slurm's partition {partition.name} gives a job {partition.max_nodes}"
        )
        raise ExecutorError(f"{text} at most: fewer GPUs fit there", permanent=True)
    if count < partition.min_nodes:
        text = f"its GPUs are on {count} nodes, and Slurm's partition {partition.name} gives a job"
        raise ExecutorError(f"{text} {partition.min_nodes} at least: more GPUs fit there", permanent=True)


def _count(text: str) -> int | None:
    """UNLIMITED, and 0 for a whole cluster, mean no limit."""
    return int(text) if text.isascii() and text.isdecimal() and int(text) else None


def configured(config: str, name: str) -> str:
    found = re.search(rf"^{name}\s*=\s*(\S+)", config, re.MULTILINE)
    return found[1] if found else ""
