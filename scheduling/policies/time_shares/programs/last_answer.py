"""A time-sharing policy's last answer, read from a snapshot's memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scheduling.domain import Snapshot
from scheduling.policies.time_shares.programs.deficits import DeficitTable

#: Key in the rounds' memory that contains the policy's memory.
MEMORY = "time_sharing"


def remembered(snapshot: Snapshot) -> Mapping[str, Any]:
    """What the policy stored at its last computation."""
    found: Mapping[str, Any] = snapshot.memory.get(MEMORY, {}).get("policy", {})
    return found


def last_shares(snapshot: Snapshot) -> Mapping[str, Mapping[str, float]]:
    """The last time shares of jobs: {job: {type: share}}."""
    kept = snapshot.memory.get(MEMORY, {})
    if "books" in kept:
        return DeficitTable.load(kept["books"]).by_job()
    shares = kept.get("shares", {})  # the form of cases for `solve`
    return shares if isinstance(shares, Mapping) else {}
