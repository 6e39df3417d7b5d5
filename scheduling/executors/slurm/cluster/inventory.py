"""Nodes, GPUs and drain states, from `scontrol --details --oneliner show node`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from scheduling.executors.base import AcceleratorInfo, NodeInfo
from scheduling.executors.local.machine.inventory import type_name

_KEY = re.compile(r"(?:^|\s)([A-Za-z][\w:/]*)=")
#: `gpu:a100:no_consume:2K(S:0-1)`: type, flag and sockets may be missing; K is 1,024.
_GPU = re.compile(
    r"gpu(?::(?!no_consume\b)(?P<type>[A-Za-z][\w.-]*))?(?::no_consume)?:(?P<count>[0-9]{1,5})(?P<unit>K?)"
    r"(?:\([^)]*\))?$"
)
MAX_GPUS = 4_096  # of one node
#: Final: Slurm has given the node up, and ends its jobs.
_DOWN = frozenset({"DOWN", "ERROR"})
#: Its base states in which it is up.
_UP = frozenset({"IDLE", "ALLOCATED", "ALLOC", "MIXED", "MIX", "COMPLETING", "PLANNED", "RESERVED"})
#: For some time Slurm itself does not know, or the node is on its way: after a restart of slurmctld each is UNKNOWN
#: until its slurmd has registered again.
_UNCLEAR = frozenset(
    {
        "UNKNOWN", "NOT_RESPONDING", "NO_RESPOND", "FUTURE", "DYNAMIC_FUTURE", "POWER_DOWN", "POWERING_DOWN",
        "POWER_DRAIN", "REBOOT_ISSUED",
    }
)  # fmt: skip
_SILENT = frozenset({"UNKNOWN", "NOT_RESPONDING", "NO_RESPOND"})
#: Slurm wakes it for a job. Until its slurmd has registered it does not respond, which is no fault; if it never does,
#: Slurm calls it DOWN after its ResumeTimeout.
_WAKING = frozenset({"POWERED_DOWN", "POWERING_UP", "POWER_UP"})
#: Running jobs continue, none starts.
_CLOSED = frozenset(
    {
        "DRAIN", "DRAINING", "DRAINED", "FAIL", "FAILING", "MAINTENANCE", "MAINT", "RESERVED", "INVAL", "INVALID_REG",
        "BLOCKED", "REBOOT_REQUESTED",
    }
)  # fmt: skip


_MARKS = {
    "*": "NOT_RESPONDING", "%": "POWERING_DOWN", "!": "POWER_DOWN", "^": "REBOOT_ISSUED", "@": "REBOOT_REQUESTED",
    "$": "MAINT", "#": "POWERING_UP", "~": "POWERED_DOWN",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Used:
    """What jobs use of a node, ours and others."""

    gpus: int = 0
    cpus: int = 0
    memory_mib: int = 0


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """A node in Slurm. `gpu_types`: of each index, as in --gres ("" if it has none). `state`: in Slurm's words, with
    its reason."""

    info: NodeInfo
    address: str
    gpu_types: tuple[str, ...]
    state: str = ""
    used: Used = Used()
    features: tuple[str, ...] = ()
    partitions: frozenset[str] = frozenset()

    @property
    def usable(self) -> bool:
        """New jobs may start there, as far as Slurm knows."""
        return self.info.reachable and not self.info.unclear and self.info.drain_reason is None

    @property
    def wakes(self) -> bool:
        """It is powered down, or on its way up, for the job that will run there."""
        return bool(_states(self.state.partition(":")[0]) & _WAKING)

    @property
    def is_waking(self) -> bool:
        """Slurm has a job for it, or has started to power it up."""
        words = _states(self.state.partition(":")[0])
        return bool(words & _WAKING) and bool(words & {"POWERING_UP", "POWER_UP", "ALLOCATED", "ALLOC", "MIXED", "MIX"})

    @property
    def up(self) -> bool:
        return self.info.reachable and not self.info.unclear and not self.wakes

    @property
    def silent(self) -> bool:
        """Its slurmd does not respond, as far as Slurm knows: its runners' files count."""
        return not self.info.reachable or self.info.unclear in _SILENT


def parse_nodes(
    text: str, partition: str = "", *, reservation: str = "", emulated: bool = False, memory_mib: int = 0
) -> list[SlurmNode]:
    """Those of the partition (of all if none is named) with GPUs. If jobs go into a reservation, reserved nodes are not
    closed to them."""
    if reservation:
        text = text.replace("+RESERVED", "")
    found = (parse_node(line, emulated, memory_mib) for line in text.splitlines() if "NodeName=" in line)
    return [node for node, partitions in found if node.gpu_types and (not partition or partition in partitions)]


def parse_node(line: str, emulated: bool, memory_mib: int) -> tuple[SlurmNode, frozenset[str]]:
    fields = dict(_fields(line))
    name = fields["NodeName"]
    types = tuple(_gpus(fields.get("Gres", "")))
    states = _states(fields.get("State", "UNKNOWN"))
    accelerators = tuple(
        AcceleratorInfo(index, type_name(kind) or "gpu", f"slurm-{name}-{index}", memory_mib, emulated)
        for index, kind in enumerate(types)
    )
    info = NodeInfo(
        name,
        accelerators,
        cpus=_integer(fields, "CPUEfctv") or _integer(fields, "CPUTot"),
        # Slurm reserves the rest, and refuses a job that asks for it
        memory_mib=max(0, _integer(fields, "RealMemory") - _integer(fields, "MemSpecLimit")),
        reachable=not states & _DOWN,
        unclear=_unclear(states),
        drain_reason=_drain_reason(states, fields),
    )
    state = ": ".join(filter(None, (fields.get("State", "UNKNOWN"), _reason(fields))))
    used = Used(_used_gpus(fields.get("GresUsed", "")), _integer(fields, "CPUAlloc"), _integer(fields, "AllocMem"))
    features = tuple(word for word in fields.get("ActiveFeatures", "").split(",") if word not in ("", "(null)"))
    partitions = frozenset(fields.get("Partitions", "").split(","))
    node = SlurmNode(info, fields.get("NodeAddr") or name, types, state, used, features, partitions)
    return node, partitions


def features_of(nodes: Iterable[SlurmNode]) -> dict[str, list[str]]:
    """Nodes by feature."""
    found: dict[str, list[str]] = {}
    for node in nodes:
        for feature in node.features:
            found.setdefault(feature, []).append(node.info.name)
    return found


def _unclear(states: frozenset[str]) -> str:
    """An unknown word of a newer Slurm changes nothing."""
    if states & _DOWN:
        return ""
    if states & _WAKING:
        states = states - {"NOT_RESPONDING", "NO_RESPOND"}
    found = sorted(states & _UNCLEAR, key=lambda word: (word not in _SILENT, word))
    return found[0] if found else "" if states & _UP else " ".join(sorted(states))[:60] or "UNKNOWN"


def _drain_reason(states: frozenset[str], fields: Mapping[str, str]) -> str | None:
    if not states & _CLOSED:
        return None
    return _reason(fields) or ", ".join(sorted(states & _CLOSED)).lower()


def _reason(fields: Mapping[str, str]) -> str:
    return re.sub(r"\s*\[[^\]]*\]$", "", fields.get("Reason", "")).strip()


def _fields(line: str) -> Iterator[tuple[str, str]]:
    """Values may contain spaces: a value ends where the next key begins."""
    marks = list(_KEY.finditer(line))
    for mark, following in zip(marks, [*marks[1:], None], strict=True):
        yield mark[1], line[mark.end() : following.start() if following else len(line)].strip()


def _states(text: str) -> frozenset[str]:
    """`IDLE+DRAIN`, `DOWN*`: the marks behind the word have a meaning. `*` does not respond, `%` and `!` are about to
    be powered down, `^` reboots, `@` is about to, `$` is in maintenance. A powered-down node (`~`) or one that comes up
    (`#`) is used like any other: Slurm wakes it for a job."""
    found = set()
    for word in text.split("+"):
        found.add(word.rstrip("*~#!%$@^-"))
        found |= {_MARKS[mark] for mark in set(word) & _MARKS.keys()}
    return frozenset(found)


def _gpus(gres: str) -> Iterator[str]:
    for part in re.split(r",(?![^(]*\))", gres):
        if match := _GPU.match(part.strip()):
            count = int(match["count"]) * (1_024 if match["unit"] else 1)
            yield from [match["type"] or ""] * min(count, MAX_GPUS)


def _used_gpus(gres: str) -> int:
    parts = (_GPU.match(part.strip()) for part in re.split(r",(?![^(]*\))", gres))
    return sum(int(match["count"]) for match in parts if match)


def _integer(fields: Mapping[str, str], name: str) -> int:
    text = fields.get(name, "")
    return int(text) if text.isascii() and text.isdecimal() else 0
