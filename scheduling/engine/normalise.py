"""Step 1: whole GPUs for policies that cannot share them, and node pools where not all jobs may use all nodes."""

from __future__ import annotations

from scheduling.capacity.node_pools import divide
from scheduling.domain import Snapshot
from scheduling.engine.constraints.gpu_sharing import as_whole_gpus
from scheduling.engine.constraints.unavailable_nodes import find_unavailable
from scheduling.engine.state import RoundState
from scheduling.policies.base import Policy


def normalise(snapshot: Snapshot, policy: Policy) -> RoundState:
    """Jobs on lost, drained and reserved nodes appear as queued."""
    divided = divide(snapshot if policy.capabilities.places_gpu_parts else as_whole_gpus(snapshot))
    return RoundState(policy, divided.pools, find_unavailable(divided.snapshot))
