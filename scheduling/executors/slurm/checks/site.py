"""What a site's partition and nodes mean for the portal's jobs: for `doctor`, from scontrol."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping

from scheduling.executors.base import Finding
from scheduling.executors.folding import fold_names
from scheduling.executors.slurm.commands import limit_seconds
from scheduling.executors.slurm.launch.times import requested_seconds
from scheduling.executors.slurm.options import Options

_FIELD = re.compile(r"(\S+?)=(\S*)")
_NODE = re.compile(r"^NodeName=(\S+)(.*)$", re.MULTILINE)
_OPEN = ("ALL", "")


def examine_partition(shown: str, nodes: str, options: Options) -> Iterator[Finding]:
    """`shown`: by `scontrol --oneliner show partition`; `nodes`: by `scontrol --oneliner show node`."""
    found = [dict(_FIELD.findall(line)) for line in shown.splitlines() if "PartitionName=" in line]
    partition = next((one for one in found if _is_ours(one, options)), None)
    if partition is None:
        return
    yield _others(partition, nodes)
    yield _times(partition, options)
    yield from _kept_memory(partition["PartitionName"], nodes)


def _is_ours(partition: Mapping[str, str], options: Options) -> bool:
    name = options.partition
    return partition["PartitionName"] == name if name else partition.get("Default") == "YES"


def _others(partition: Mapping[str, str], nodes: str) -> Finding:
    name = partition["PartitionName"]
    limits = [f"{key}={value}" for key in ("AllowGroups", "AllowAccounts", "AllowQos")
              if (value := partition.get(key, "")) not in _OPEN]  # fmt: skip
    beside = {other for _, rest in _NODE.findall(nodes) for other in _partitions(rest) if name in _partitions(rest)}
    words = f"{name} is for {' '.join(limits)}" if limits else f"everybody may use {name}"
    if more := sorted(beside - {name}):
        words += f"; its nodes are in {', '.join(more)}, too"
    return Finding("other users", True, words)


def _partitions(rest: str) -> list[str]:
    found = re.search(r" Partitions=(\S+)", rest)
    return found[1].split(",") if found else []


def _times(partition: Mapping[str, str], options: Options) -> Finding:
    """Launches request the time they need, whatever the partition's default is, and never more than it allows."""
    name, longest = partition["PartitionName"], partition.get("MaxTime", "UNLIMITED")
    most_s, wanted_s = limit_seconds(longest), requested_seconds(wanted := options.time_limit)
    if most_s is not None and wanted_s is not None and wanted_s > most_s:
        seen = f"EVENKEEL_SLURM_TIME={wanted} is more than {name} allows ({longest}), which is what launches ask for"
        return Finding("time limits", True, seen, f"set it to at most {longest}, or leave it out", warning=True)
    if wanted:
        return Finding("time limits", True, f"{wanted} (EVENKEEL_SLURM_TIME); {name} allows {longest}")
    return Finding("time limits", True, f"{name} allows {longest}")


def _kept_memory(partition: str, nodes: str) -> Iterator[Finding]:
    kept = defaultdict(list)
    for node, rest in _NODE.findall(nodes):
        found = re.search(r" MemSpecLimit=([1-9][0-9]*)", rest)
        if found and partition in _partitions(rest):
            kept[int(found[1])].append(node)
    if kept:
        words = "; ".join(f"{fold_names(names)} keep {mib:,} MiB" for mib, names in sorted(kept.items()))
        yield Finding("MemSpecLimit", True, f"{words} for themselves: jobs are not promised it")
