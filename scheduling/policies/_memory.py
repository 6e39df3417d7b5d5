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


def promised(snapshot: Snapshot) -> Mapping[str, Mapping[str, float]]:
    """The last fractions of jobs: {job: {type: fraction}}."""
    shares = snapshot.memory.get(MEMORY, {}).get("shares", {})
    return shares if isinstance(shares, Mapping) else {}  # a list: written by an earlier release
