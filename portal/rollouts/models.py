"""Rollouts of a policy: shadow evaluation beside the live policy, then promotion under guard, and the outcome."""

from __future__ import annotations

import uuid

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone

from portal.jobs.models import Cluster, PolicyChange
from portal.lab.models import Simulation


class Phase(models.TextChoices):
    SHADOW = "shadow"
    LIVE = "live"
    KEPT = "kept"
    ROLLED_BACK = "rolled_back"
    CANCELLED = "cancelled"
    SUPERSEDED = "superseded"


UNFINISHED = (Phase.SHADOW, Phase.LIVE)


class Rollout(models.Model):
    number = models.BigAutoField(primary_key=True)
    id = models.UUIDField(unique=True, default=uuid.uuid4, editable=False)
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="rollouts")
    #: The simulation behind the prediction; the prediction is stored here and outlives it.
    simulation = models.ForeignKey(Simulation, null=True, on_delete=models.SET_NULL, related_name="rollouts")
    policy = models.CharField(max_length=60)
    parameters = models.JSONField(default=dict)
    label = models.CharField(max_length=300)
    phase = models.CharField(max_length=12, choices=Phase)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(default=timezone.now)

    bounds = models.JSONField()  # as requested (portal.rollouts.bounds.Bounds)
    guard_s = models.PositiveIntegerField()
    least_jobs = models.PositiveIntegerField()
    least_s = models.PositiveIntegerField()
    prediction = models.JSONField(null=True)  # portal.rollouts.indicators.Indicators

    promoted_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    promoted_at = models.DateTimeField(null=True)
    guard_until = models.DateTimeField(null=True)
    #: Another person has changed the policy meanwhile.
    change = models.ForeignKey(PolicyChange, null=True, on_delete=models.SET_NULL, related_name="+")
    previous_policy = models.CharField(max_length=60, blank=True, default="")
    previous_parameters = models.JSONField(default=dict)
    before = models.JSONField(null=True)  # the indicators of an equally long time before
    limits = models.JSONField(default=dict)  # resolved bounds
    problem = models.CharField(max_length=500, blank=True, default="")  # why the last check failed

    ended_at = models.DateTimeField(null=True)
    ended_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    outcome = models.CharField(max_length=500, blank=True, default="")

    #: Its memory between shadow evaluations.
    memory = models.JSONField(null=True)
    shadow_round = models.BigIntegerField(null=True)
    #: A round whose evaluation was started and never finished.
    shadow_begun = models.BigIntegerField(null=True)
    shadow_error = models.CharField(max_length=500, blank=True, default="")
    totals = models.JSONField(default=dict)

    class Meta:
        ordering = ["-number"]
        constraints = [
            models.UniqueConstraint(
                fields=["cluster"], condition=Q(phase__in=["shadow", "live"]), name="one_unfinished_rollout"
            ),
            models.CheckConstraint(
                condition=~Q(phase="live") | Q(promoted_at__isnull=False, guard_until__isnull=False),
                name="live_rollout_has_a_guard",
            ),
        ]

    def __str__(self) -> str:
        return f"rollout {self.number}"


class ShadowDecision(models.Model):
    """What the candidate would have decided differently in one round, or in several equal ones in a row."""

    rollout = models.ForeignKey(Rollout, on_delete=models.CASCADE, related_name="decisions")
    round = models.BigIntegerField()
    at = models.DateTimeField()
    last_round = models.BigIntegerField()
    last_at = models.DateTimeField()
    rounds = models.PositiveIntegerField(default=1)
    seconds = models.FloatField()
    different = models.PositiveIntegerField()  # jobs whose GPUs differ in number or type
    elsewhere = models.PositiveIntegerField()  # jobs with equal number and type, but different GPUs
    live = models.JSONField()
    candidate = models.JSONField()
    digest = models.CharField(max_length=64)
    packed = models.BinaryField()  # zstd: the jobs that differ, and the candidate's moves
    size_bytes = models.PositiveIntegerField()

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.rollout_id} round {self.round}"


class GuardCheck(models.Model):
    rollout = models.ForeignKey(Rollout, on_delete=models.CASCADE, related_name="checks")
    at = models.DateTimeField()
    values = models.JSONField()
    broken = models.JSONField(default=list)  # names of the indicators that exceed their bounds

    class Meta:
        ordering = ["at"]
        indexes = [models.Index(fields=["rollout", "at"], name="guard_check_age")]

    def __str__(self) -> str:
        return f"{self.rollout_id} at {self.at:%F %T}"
