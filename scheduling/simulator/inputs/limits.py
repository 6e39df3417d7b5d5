"""Limits of projects from the cluster file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict, Field

from scheduling.domain import Guarantee, Limit, Node
from scheduling.errors import InvalidInput
from scheduling.validation import StrictNumbers, validated


class _Entry(StrictNumbers):
    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["gpus", "running_jobs", "queued_jobs"] = "gpus"
    most: int = Field(ge=0)
    type: str | None = None
    projects: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ProjectLimit:
    """A limit on what the jobs of some projects hold together; without projects, on all jobs."""

    limit: Limit
    projects: frozenset[str] = frozenset()


def read_limits(path: Path, value: Any, nodes: Iterable[Node]) -> tuple[ProjectLimit, ...]:
    """The widest first, like levels; of the types of the nodes."""
    entries = validated(list[_Entry], value, str(path), "limits")
    there = sorted({node.type for node in nodes})
    for number, entry in enumerate(entries):
        if entry.type is not None and entry.type not in there:
            have = ", ".join(there) or "no types"
            raise InvalidInput(f"{path}: limits[{number}].type: the cluster has no {entry.type!r}, only {have}")
    found = [ProjectLimit(_limit(entry), frozenset(entry.projects)) for entry in entries]
    return tuple(sorted(found, key=lambda each: -len(each.projects) if each.projects else float("-inf")))


def _limit(entry: _Entry) -> Limit:
    if not entry.projects:
        level = "the cluster"
    else:
        level = f"project{'s' if len(entry.projects) > 1 else ''} {', '.join(entry.projects)}"
    return Limit(entry.kind, entry.most, entry.type, level)


class _Guaranteed(StrictNumbers):
    model_config = ConfigDict(extra="forbid", frozen=True)

    project: str
    gpus: int = Field(ge=1)
    type: str | None = None
    reclaim_within_s: float = Field(default=300.0, ge=0)


def read_guarantees(path: Path, value: Any, nodes: Iterable[Node]) -> tuple[Guarantee, ...]:
    """GPUs that projects get back from borrowers; together no more than the cluster has."""
    entries = validated(list[_Guaranteed], value, str(path), "guarantees")
    sizes = [(node.type, len(node.gpu_ids)) for node in nodes]
    for kind in (None, *dict.fromkeys(entry.type for entry in entries if entry.type)):
        there = sum(size for name, size in sizes if kind in (None, name))
        promised = _promised(entries, kind)
        if promised > there:
            raise InvalidInput(f"{path}: guarantees: {promised} {kind or 'GPUs'} are guaranteed and there are {there}")
    return tuple(Guarantee(e.project, e.gpus, e.type, e.reclaim_within_s, f"project {e.project}") for e in entries)


def _promised(entries: Iterable[_Guaranteed], kind: str | None) -> int:
    """A project's guarantees of types are part of its total guarantee."""
    whole, typed = Counter[str](), Counter[str]()
    for entry in entries:
        if entry.type is None:
            whole[entry.project] += entry.gpus
        elif kind in (None, entry.type):
            typed[entry.project] += entry.gpus
    return sum(typed.values()) if kind else sum((whole | typed).values())


def by_key(limits: Iterable[ProjectLimit]) -> Mapping[str, Limit]:
    return {str(number): each.limit for number, each in enumerate(limits)}


def binding(limits: Iterable[ProjectLimit], project: str) -> tuple[str, ...]:
    """Keys of the limits that apply to the project's jobs."""
    return tuple(str(n) for n, each in enumerate(limits) if not each.projects or project in each.projects)
