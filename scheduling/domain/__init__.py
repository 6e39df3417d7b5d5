"""The input and output of a round: frozen values, no clock, no database.

Times are POSIX seconds (float) on the caller's clock, throughputs training steps per second.
"""

from __future__ import annotations

from scheduling.domain.cluster import Beside, Drain, Node, Others, Partition, Window
from scheduling.domain.job import POOL_MARK, WHOLE, Curve, Gang, Job, NodeBounds, plain_type
from scheduling.domain.plan import Allocation, Move, Plan, Reason
from scheduling.domain.quota import Entity, Guarantee, Limit, Qos
from scheduling.domain.snapshot import Snapshot

__all__ = [
    "POOL_MARK",
    "WHOLE",
    "Allocation",
    "Beside",
    "Curve",
    "Drain",
    "Entity",
    "Gang",
    "Guarantee",
    "Job",
    "Limit",
    "Move",
    "Node",
    "NodeBounds",
    "Others",
    "Partition",
    "Plan",
    "Qos",
    "Reason",
    "Snapshot",
    "Window",
    "plain_type",
]
