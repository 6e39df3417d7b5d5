"""Tables of the portal: clusters, nodes, jobs, runs and their occupancy."""

from __future__ import annotations

from portal.jobs.models.activity import IdleRule, RunActivity
from portal.jobs.models.allocation import Assignment, Displacement, Hold
from portal.jobs.models.cluster import Cluster, ModelType, PolicyChange
from portal.jobs.models.decision import Decision, DecisionBase
from portal.jobs.models.event import JobEvent
from portal.jobs.models.failing_item import FailingItem, FailureCount
from portal.jobs.models.history import EVERY_S, By, ClusterSample, FairnessSample, ShareSample
from portal.jobs.models.job import (
    LIVE_VALUES,
    STATE_CHOICES,
    Dependency,
    HoldKind,
    IdempotencyKey,
    Job,
    JobArray,
    next_job_numbers,
)
from portal.jobs.models.measurement import (
    MetricPoint,
    PairSample,
    ResourceProfile,
    ResourceSeries,
    StartSample,
    ThroughputSample,
)
from portal.jobs.models.node import Accelerator, CheckState, Node, NodeCheck
from portal.jobs.models.partition import Partition
from portal.jobs.models.run import Checkpoint, Command, Handover, Run
from portal.jobs.models.saved import JobTemplate, SavedView
from portal.jobs.models.service_level import Qos
from portal.jobs.models.window import NodeWindow

__all__ = [
    "EVERY_S",
    "LIVE_VALUES",
    "STATE_CHOICES",
    "Accelerator",
    "Assignment",
    "By",
    "CheckState",
    "Checkpoint",
    "Cluster",
    "ClusterSample",
    "Command",
    "Decision",
    "DecisionBase",
    "Dependency",
    "Displacement",
    "FailingItem",
    "FailureCount",
    "FairnessSample",
    "Handover",
    "Hold",
    "HoldKind",
    "IdempotencyKey",
    "IdleRule",
    "Job",
    "JobArray",
    "JobEvent",
    "JobTemplate",
    "MetricPoint",
    "ModelType",
    "Node",
    "NodeCheck",
    "NodeWindow",
    "PairSample",
    "Partition",
    "PolicyChange",
    "Qos",
    "ResourceProfile",
    "ResourceSeries",
    "Run",
    "RunActivity",
    "SavedView",
    "ShareSample",
    "StartSample",
    "ThroughputSample",
    "next_job_numbers",
]
