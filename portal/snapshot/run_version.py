"""The version of a run that a round has seen."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from scheduling.lifecycle import State


@dataclass(frozen=True, slots=True)
class RunVersion:
    """A job's live run as in the snapshot."""

    run_id: UUID
    state: State
    epoch: int
    project_id: int
