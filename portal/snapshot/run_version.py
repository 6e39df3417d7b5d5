"""Which version of a run a round has seen."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from scheduling.lifecycle import State


@dataclass(frozen=True, slots=True)
class RunVersion:
    """A job's live run as the snapshot had it."""

    run_id: UUID
    state: State
    epoch: int
    project_id: int
