"""What policies of fractions find in a snapshot's memory of their own last answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scheduling.domain import Snapshot

#: The key of the rounds' memory, of which the policy's is a part.
MEMORY = "time_sharing"


def remembered(snapshot: Snapshot) -> Mapping[str, Any]:
    """What the policy asked to be remembered at its last computation."""
    found: Mapping[str, Any] = snapshot.memory.get(MEMORY, {}).get("policy", {})
    return found


def promised(snapshot: Snapshot) -> dict[str, Mapping[str, float]]:
    """The last fractions of single jobs: {job: {type: fraction}}."""
    shares = snapshot.memory.get(MEMORY, {}).get("shares", [])
    return {key[0]: by_type for key, by_type in shares if len(key) == 1}
