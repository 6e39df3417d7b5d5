"""Limits of projects, as the cluster file gives them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from scheduling.domain import Limit
from scheduling.errors import InvalidInput


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["gpus", "running_jobs", "queued_jobs"] = "gpus"
    most: int = Field(ge=0)
    type: str | None = None
    projects: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ProjectLimit:
    """A limit on what the jobs of some projects have together; without projects, on what all have."""

    limit: Limit
    projects: frozenset[str] = frozenset()


def read_limits(path: Path, value: Any) -> tuple[ProjectLimit, ...]:
    """The widest first, as levels are."""
    try:
        entries = TypeAdapter(list[_Entry]).validate_python(value)
    except ValidationError as error:
        first = error.errors()[0]
        place = ", ".join(str(part) for part in first["loc"])
        raise InvalidInput(f"{path}, limits, {place}: {first['msg']}") from None
    found = [ProjectLimit(_limit(entry), frozenset(entry.projects)) for entry in entries]
    return tuple(sorted(found, key=lambda each: -len(each.projects) if each.projects else float("-inf")))


def _limit(entry: _Entry) -> Limit:
    if not entry.projects:
        level = "the cluster"
    else:
        level = f"project{'s' if len(entry.projects) > 1 else ''} {', '.join(entry.projects)}"
    return Limit(entry.kind, entry.most, entry.type, level)


def by_key(limits: Iterable[ProjectLimit]) -> Mapping[str, Limit]:
    return {str(number): each.limit for number, each in enumerate(limits)}


def binding(limits: Iterable[ProjectLimit], project: str) -> tuple[str, ...]:
    """Keys of the limits that bind the project's jobs."""
    return tuple(str(n) for n, each in enumerate(limits) if not each.projects or project in each.projects)
