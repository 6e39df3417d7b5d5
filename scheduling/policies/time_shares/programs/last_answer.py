"""What policies of fractions find in a snapshot's memory of their own last answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scheduling.domain import Snapshot
from scheduling.policies.time_shares.programs.deficits import DeficitTable

#: The key of the rounds' memory, of which the policy's is a part.
MEMORY = "time_sharing"


def remembered(snapshot: Snapshot) -> Mapping[str, Any]:
    """What the policy asked to be remembered at its last computation."""
    found: Mapping[str, Any] = snapshot.memory.get(MEMORY, {}).get("policy", {})
    return found


def last_shares(snapshot: Snapshot) -> Mapping[str, Mapping[str, float]]:
    """The last fractions of jobs: {job: {type: fraction}}."""
    kept = snapshot.memory.get(MEMORY, {})
    if "books" in kept:
        return DeficitTable.load(kept["books"]).by_job()
    shares = kept.get("shares", {})  # as a case for `solve` has them
    return shares if isinstance(shares, Mapping) else {}
