"""Time windows of nodes."""

from __future__ import annotations

from datetime import datetime

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q
from django.utils import timezone

from accounts.models import Project


class NodeWindow(models.Model):
    """Ends at `end_at`, or when it is revoked. The row is kept."""

    class Kind(models.TextChoices):
        MAINTENANCE = "maintenance"
        RESERVATION = "reservation"

    cluster = models.ForeignKey("jobs.Cluster", on_delete=models.CASCADE, related_name="windows")
    kind = models.CharField(max_length=12, choices=Kind)
    start_at = models.DateTimeField()
    end_at = models.DateTimeField()
    reason = models.CharField(max_length=200, blank=True, default="")
    nodes = ArrayField(models.CharField(max_length=120), default=list)
    accelerator_types = ArrayField(models.CharField(max_length=60), default=list)
    all_nodes = models.BooleanField(default=False)
    #: Of a reservation: who may use the nodes, including all subprojects of these projects.
    projects = models.ManyToManyField(Project, blank=True, related_name="reservations")
    users = models.ManyToManyField(settings.AUTH_USER_MODEL, blank=True, related_name="reservations")
    created_at = models.DateTimeField(default=timezone.now)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    removed_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.CheckConstraint(condition=Q(end_at__gt=F("start_at")), name="window_ends_after_its_start")
        ]
        indexes = [models.Index(fields=["end_at"], condition=Q(removed_at=None), name="window_open")]

    def __str__(self) -> str:
        return f"{self.kind} window {self.pk}"

    def has(self, node: str, accelerator_type: str) -> bool:
        return self.all_nodes or node in self.nodes or accelerator_type in self.accelerator_types

    def state(self, now: datetime) -> str:
        if self.removed_at is not None:
            return "removed"
        return "coming" if now < self.start_at else "in_force" if now < self.end_at else "over"
