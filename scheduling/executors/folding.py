"""Merges equal lines about many nodes: `gpu[1-64]: ...`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from scheduling.executors.base import Finding

_NUMBERED = re.compile(r"(.*?)(0|[1-9][0-9]{0,8})")
_NUMBER = re.compile(r"[0-9][0-9,]*")


def fold_names(names: Iterable[str]) -> str:
    """In Slurm's format of host lists."""
    numbers: dict[str, list[int]] = {}
    others = []
    for name in sorted(set(names)):
        if found := _NUMBERED.fullmatch(name):
            numbers.setdefault(found[1], []).append(int(found[2]))
        else:
            others.append(name)
    folded = [f"{stem}{_ranges(sorted(found))}" for stem, found in numbers.items()]
    return ",".join([*folded, *others])


def _ranges(numbers: Sequence[int]) -> str:
    if len(numbers) == 1:
        return str(numbers[0])
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1][1:] = [number]
        else:
            parts.append([number])
    return "[" + ",".join("-".join(map(str, part)) for part in parts) + "]"


def fold_findings(said: Mapping[str, Sequence[Finding]]) -> Iterator[Finding]:
    """`said`: for each node, in display order.

    If only numbers differ, the least is shown. A node's own name is no difference, and appears as `%n` if several nodes
    share a line: `/scratch/%n`.
    """
    groups: dict[Finding, list[tuple[list[int], str, Finding]]] = {}
    for node, findings in said.items():
        for one in findings:
            unnamed = _without_name(node, one.seen)
            numbers = [int(found.replace(",", "")) for found in _NUMBER.findall(unnamed)]
            groups.setdefault(replace(one, seen=_NUMBER.sub("#", unnamed)), []).append((numbers, node, one))
    for found in groups.values():
        numbers, node, least = min(found, key=lambda one: one[0])
        seen = _without_name(node, least.seen) if len(found) > 1 else least.seen
        if any(one[0] != numbers for one in found):
            seen = f"{seen} on {node}, the least"
        yield replace(least, subject=f"{fold_names(node for _, node, _ in found)}: {least.subject}", seen=seen)


def _without_name(node: str, seen: str) -> str:
    return re.sub(rf"(?<![\w.-]){re.escape(node)}(?![\w-])", "%n", seen)
