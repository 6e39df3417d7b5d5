"""Examinations of nodes: before their first use, after they were lost, after faults, and when somebody asks.

Import the model from portal.jobs.models.
"""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone


class NodeCheck(models.Model):
    """Open until `ended_at`; a node has one open at most. Of the ended ones the newest few are kept."""

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
    #: How often it was begun: a worker may die with it.
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
