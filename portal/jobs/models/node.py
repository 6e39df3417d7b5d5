"""Nodes, their accelerators, and their checks."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone

from portal.jobs.models.cluster import Cluster


class CheckState(models.TextChoices):
    CHECKING = "checking"
    FAILED = "failed"


class Node(models.Model):
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="nodes")
    name = models.CharField(max_length=120)
    accelerator_type = models.CharField(max_length=60)
    emulated = models.BooleanField(default=False)
    cpus = models.PositiveIntegerField(default=0)
    memory_mib = models.PositiveIntegerField(default=0)
    drained = models.BooleanField(default=False)
    drained_at = models.DateTimeField(null=True)
    #: Jobs that are still there then leave or are stopped; None: they leave when there is room elsewhere.
    drain_deadline_at = models.DateTimeField(null=True)
    drain_reason = models.CharField(max_length=200, blank=True, default="")
    drained_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    #: The event of its deadline was written.
    drain_came_due = models.BooleanField(default=False, editable=False)
    lost = models.BooleanField(default=False)
    #: The engine's word for a node whose state it does not know, and since when; empty: it does.
    unclear = models.CharField(max_length=60, blank=True, default="", editable=False)
    unclear_since = models.DateTimeField(null=True, editable=False)
    #: GPUs, CPUs and memory that the engine's other jobs hold (scheduling.executors.base.Taken), if any.
    taken = models.JSONField(default=list, blank=True, editable=False)
    #: Powered down: a launch there waits this long for it, by the engine.
    boot_s = models.FloatField(default=0.0, editable=False)
    last_seen_at = models.DateTimeField(null=True)
    #: No job is placed there: its first check has not ended, or the last one failed. Empty: neither.
    check_state = models.CharField(max_length=10, choices=CheckState, blank=True, default="")
    check_failures = models.PositiveIntegerField(default=0, editable=False)  # in a row
    next_check_at = models.DateTimeField(null=True)
    #: Runs that failed before do not count against the node.
    faults_from = models.DateTimeField(null=True, editable=False)
    check_waived_at = models.DateTimeField(null=True)
    check_waived_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    #: Total numbers, for monitoring.
    checks_passed = models.PositiveIntegerField(default=0, editable=False)
    checks_failed = models.PositiveIntegerField(default=0, editable=False)

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["cluster", "name"], name="one_node_per_name")]

    def __str__(self) -> str:
        return self.name

    @property
    def schedulable(self) -> bool:
        return not (self.drained or self.lost or self.check_state or self.unclear)

    @property
    def withheld(self) -> str:
        """Why no job is placed there, if a check or an unclear state of the engine prevents it."""
        if self.unclear and not self.check_state:
            return f"its engine says {self.unclear}"
        return {"": "", CheckState.CHECKING: "being checked", CheckState.FAILED: "failed its check"}[self.check_state]


class Accelerator(models.Model):
    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="accelerators")
    index = models.PositiveSmallIntegerField()
    uuid = models.CharField(max_length=80)
    memory_mib = models.PositiveIntegerField(default=0)
    #: False: the node no longer reports it; no job is placed on it.
    present = models.BooleanField(default=True)
    #: Maintained by triggers on Hold and Assignment, which refuse more than there is: GPU share and memory that are
    #: neither occupied nor planned.
    free_share_percent = models.SmallIntegerField(default=100, editable=False)
    unplanned_share_percent = models.SmallIntegerField(default=100, editable=False)
    held_memory_mib = models.PositiveIntegerField(default=0, editable=False)
    planned_memory_mib = models.PositiveIntegerField(default=0, editable=False)

    class Meta:
        ordering = ["node", "index"]
        constraints = [
            models.UniqueConstraint(fields=["node", "index"], name="one_accelerator_per_index"),
            models.CheckConstraint(
                condition=Q(free_share_percent__gte=0, unplanned_share_percent__gte=0), name="accelerator_not_overfull"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.node}/{self.index}"


class NodeCheck(models.Model):
    """Open until `ended_at`; a node has at most one open check. The newest few ended ones are kept."""

    class Cause(models.TextChoices):
        JOINED = "joined"
        RETURNED = "returned"
        FAULTS = "faults"
        ASKED = "asked"
        AGAIN = "again"

    node = models.ForeignKey("jobs.Node", on_delete=models.CASCADE, related_name="checks")
    cause = models.CharField(max_length=10, choices=Cause)
    asked_at = models.DateTimeField(default=timezone.now)
    asked_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    #: How often it was started: a worker may die during it.
    attempts = models.PositiveSmallIntegerField(default=0)
    begun_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    passed = models.BooleanField(null=True)
    #: [{"subject", "result": "passed" | "failed" | "unknown", "seen", "fix"}, ...]
    findings = models.JSONField(default=list)

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(fields=["node"], condition=Q(ended_at=None), name="one_open_check_per_node"),
            models.CheckConstraint(
                condition=Q(ended_at=None, passed=None) | Q(ended_at__isnull=False, passed__isnull=False),
                name="node_check_ends_with_a_result",
            ),
        ]

    def __str__(self) -> str:
        return f"check {self.pk} of {self.node_id}"
