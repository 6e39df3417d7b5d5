"""Requested simulations, their trials with results, and uploaded traces."""

from __future__ import annotations

import uuid

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone

from portal.jobs.models import Cluster


class State(models.TextChoices):
    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


UNFINISHED = (State.QUEUED, State.RUNNING)


class Trace(models.Model):
    """An uploaded trace as `evenkeel-trace/1`, whatever its original format."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    name = models.CharField(max_length=120)
    format = models.CharField(max_length=20)
    summary = models.JSONField(default=dict)
    packed = models.BinaryField()  # zstd
    size_bytes = models.PositiveIntegerField()
    created_at = models.DateTimeField(default=timezone.now)

    def __str__(self) -> str:
        return self.name


class Simulation(models.Model):
    number = models.BigAutoField(primary_key=True)
    id = models.UUIDField(unique=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=120, blank=True, default="")
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="simulations")
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="simulations")
    created_at = models.DateTimeField(default=timezone.now)
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    state = models.CharField(max_length=10, choices=State, default=State.QUEUED)
    reason = models.CharField(max_length=500, blank=True, default="")
    spec = models.JSONField()
    summary = models.JSONField(null=True)  # of the workload
    jobs_done = models.PositiveIntegerField(default=0)
    #: Jobs and hardware of every trial (portal.lab.inputs): built once, so that results are repeatable.
    inputs = models.BinaryField(null=True)  # zstd
    size_bytes = models.PositiveBigIntegerField(default=0)
    cancel_asked = models.BooleanField(default=False)
    #: The worker that runs it, and its last sign of life.
    claim = models.UUIDField(null=True)
    heard_at = models.DateTimeField(null=True)
    attempts = models.PositiveSmallIntegerField(default=0)

    class Meta:
        ordering = ["-number"]
        indexes = [models.Index(fields=["number"], condition=Q(state__in=["queued", "running"]), name="lab_unfinished")]

    def __str__(self) -> str:
        return f"simulation {self.number}"


class Trial(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    simulation = models.ForeignKey(Simulation, on_delete=models.CASCADE, related_name="trials")
    index = models.PositiveSmallIntegerField()
    policy = models.CharField(max_length=60)
    parameters = models.JSONField(default=dict)
    given = models.JSONField(default=dict)
    label = models.CharField(max_length=300)
    seed = models.BigIntegerField()
    role = models.CharField(max_length=10, default="candidate")
    state = models.CharField(max_length=10, choices=State, default=State.QUEUED)
    error = models.CharField(max_length=500, blank=True, default="")
    metrics = models.JSONField(null=True)
    packed = models.BinaryField(null=True)  # zstd: the output of portal.lab.trials.detail_of
    size_bytes = models.PositiveIntegerField(default=0)

    class Meta:
        ordering = ["index"]
        constraints = [models.UniqueConstraint(fields=["simulation", "index"], name="one_trial_per_index")]

    def __str__(self) -> str:
        return self.label
