"""Roles that a directory group gives; read with the settings, so before models exist."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Grant:
    """A role in a project, or administration of the cluster if `project` is None."""

    project: str | None = None
    role: str = ""
