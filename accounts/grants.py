"""What a group of the directory gives; read with the settings, so before there are models."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Grant:
    """A role in a project, or the administration of the cluster where `project` is None."""

    project: str | None = None
    role: str = ""
