"""Samples of clusters, fairness and shares over time."""

from __future__ import annotations

from typing import Literal

from django.conf import settings
from django.db import models
from django.db.models import Q

from accounts.models import Project
from portal.jobs.models.cluster import Cluster


class ClusterSample(models.Model):
    """One point of the overview's sparklines."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="samples")
    at = models.DateTimeField()
    gpus_total = models.PositiveIntegerField()
    gpus_held = models.PositiveIntegerField()
    #: GPUs, fractions included, of runs that train; null in points from before it was stored, like `waiting`.
    gpus_training = models.FloatField(null=True)
    queued = models.PositiveIntegerField()
    #: Jobs that could start: not on hold, with all dependencies satisfied.
    waiting = models.PositiveIntegerField(null=True)
    variance = models.FloatField(null=True)
    spend_micro_per_hour = models.BigIntegerField(default=0)

    class Meta:
        ordering = ["at"]
        indexes = [models.Index(fields=["cluster", "at"])]

    def __str__(self) -> str:
        return f"{self.at:%F %T}"


By = Literal["cluster", "project", "user"]
EVERY_S = 60


class FairnessSample(models.Model):
    """One minute, or several merged ones: figures are means over them; minima and maxima are over all.

    Without a project it belongs to the cluster; with a user to the user's jobs in the project.
    """

    cluster = models.ForeignKey("jobs.Cluster", on_delete=models.CASCADE, related_name="fairness_samples")
    project = models.ForeignKey(Project, null=True, on_delete=models.CASCADE, related_name="fairness_samples")
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.CASCADE, related_name="fairness_samples"
    )
    #: Begin and length of the time that the point covers.
    at = models.DateTimeField()
    step_s = models.PositiveIntegerField(default=EVERY_S)
    #: Number of its minutes with jobs, and of those with a known relative throughput.
    samples = models.PositiveIntegerField(default=1)
    known_samples = models.PositiveIntegerField()
    holding = models.FloatField()
    waiting = models.FloatField()
    lowest = models.FloatField(null=True)
    median = models.FloatField(null=True)
    mean = models.FloatField(null=True)
    highest = models.FloatField(null=True)
    slowdown = models.FloatField(null=True)
    variance = models.FloatField(null=True)
    #: The cluster's; null under a policy without one.
    bound = models.FloatField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "project", "user", "at", "step_s"],
                nulls_distinct=False,
                name="one_fairness_sample_per_time",
            ),
            models.CheckConstraint(condition=Q(user=None) | Q(project__isnull=False), name="fairness_of_a_user_in_one"),
        ]
        indexes = [models.Index(fields=["step_s", "at"], name="fairness_sample_age")]

    def __str__(self) -> str:
        return f"{self.project_id}/{self.user_id} at {self.at:%F %T}"


class ShareSample(models.Model):
    cluster = models.ForeignKey("jobs.Cluster", on_delete=models.CASCADE, related_name="share_samples")
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="share_samples")
    at = models.DateTimeField()
    norm_shares = models.FloatField()
    usage_gpu_s = models.FloatField()
    effective_usage = models.FloatField()
    #: Null under Fair Tree, which ranks only users.
    factor = models.FloatField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["cluster", "project", "at"], name="one_share_sample_per_time")]
        indexes = [models.Index(fields=["at"])]

    def __str__(self) -> str:
        return f"{self.project_id} at {self.at:%F %T}"
