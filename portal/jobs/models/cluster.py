"""Clusters, their policy and the programs that jobs may name."""

from __future__ import annotations

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.utils import timezone

from portal.jobs.models.partition import Partition


class Cluster(models.Model):
    """One set of accelerators under one policy; each cluster has one round at a time."""

    name = models.CharField(max_length=60, unique=True)
    executor = models.CharField(max_length=30, default="local")
    policy_name = models.CharField(max_length=60, default="f_scheduling")
    policy_parameters = models.JSONField(default=dict, blank=True)
    policy_memory = models.JSONField(default=dict, blank=True, editable=False)
    round_epoch = models.BigIntegerField(default=0, editable=False)
    last_round_at = models.DateTimeField(null=True, editable=False)
    last_round_s = models.FloatField(null=True, editable=False)
    #: Number and total duration of all rounds, for monitoring.
    rounds = models.BigIntegerField(default=0, editable=False)
    rounds_s = models.FloatField(default=0.0, editable=False)
    next_wake_at = models.DateTimeField(null=True, editable=False)
    figures = models.JSONField(default=dict, blank=True, editable=False)
    last_error = models.TextField(blank=True, default="", editable=False)
    #: Since when its engine has not answered; null: it answers. Nothing is planned meanwhile.
    engine_away_since = models.DateTimeField(null=True, editable=False)
    #: When it last answered again: states that overlapped the outage get their full time limit from then on.
    engine_back_at = models.DateTimeField(null=True, editable=False)
    isolation = models.CharField(max_length=200, blank=True, default="", editable=False)
    #: Engine limits of one launch (scheduling.executors.base.EngineLimits), as last seen.
    engine_limits = models.JSONField(default=dict, blank=True, editable=False)
    #: For jobs that name none.
    default_partition = models.ForeignKey(Partition, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    #: Position in the file of clusters; the first is the default one.
    position = models.PositiveSmallIntegerField(default=0, editable=False)
    #: No longer in that file: no rounds, no submissions.
    retired_at = models.DateTimeField(null=True, editable=False)
    #: The folder of its jobs' files at the last start.
    job_files = models.CharField(max_length=4_096, blank=True, default="", editable=False)

    class Meta:
        ordering = ["position", "pk"]

    def __str__(self) -> str:
        return self.name


class PolicyChange(models.Model):
    """Who chose which policy when; the newest one is in force."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="policy_changes")
    name = models.CharField(max_length=60)
    parameters = models.JSONField(default=dict)
    changed_at = models.DateTimeField(default=timezone.now)
    changed_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    effective_round = models.BigIntegerField(null=True)
    undone = models.BooleanField(default=False)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.name} at {self.changed_at:%F %T}"


class ModelType(models.Model):
    """A catalogue program. `curves`: accelerator type -> {"steps_per_s": [...], "source", "note"}."""

    name = models.SlugField(max_length=60, unique=True)
    title = models.CharField(max_length=120)
    description = models.TextField(blank=True, default="")
    argv = ArrayField(models.CharField(max_length=300))
    default_batch_size = models.PositiveIntegerField(default=64)
    curves = models.JSONField(default=dict, blank=True)
    enabled = models.BooleanField(default=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name
