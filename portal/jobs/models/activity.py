"""How runs use their GPUs, and from when on they count as idle.

Import the models from portal.jobs.models.
"""

from __future__ import annotations

from datetime import timedelta

from django.contrib.postgres.fields import ArrayField
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import F, Q


class RunActivity(models.Model):
    """One row per run, of its newest launch, written by its reports: a heartbeat is no event."""

    run = models.OneToOneField("jobs.Run", primary_key=True, on_delete=models.CASCADE, related_name="activity")
    epoch = models.PositiveIntegerField()
    accelerator_type = models.CharField(max_length=60)
    gpu_hundredths = models.PositiveIntegerField()
    #: When the newest report was sent. A job is idle only up to then: missing reports do not mean idle.
    heard_at = models.DateTimeField()
    stepped_at = models.DateTimeField()
    #: When it last was as busy as the rule requires; also if its utilisation is unknown.
    busy_at = models.DateTimeField()
    #: When its utilisation was last reported, and its value: of each GPU, in order of node and index.
    measured_at = models.DateTimeField(null=True)
    utilisation = ArrayField(models.FloatField(), default=list)
    warned_at = models.DateTimeField(null=True)
    postponed_until = models.DateTimeField(null=True)
    postponements = models.PositiveSmallIntegerField(default=0)

    class Meta:
        indexes = [models.Index(fields=["warned_at"], condition=Q(warned_at__isnull=False), name="activity_warned")]

    def __str__(self) -> str:
        return f"{self.run_id} epoch {self.epoch}"

    @property
    def mean_utilisation(self) -> float | None:
        return sum(self.utilisation) / len(self.utilisation) if self.utilisation else None


class IdleRule(models.Model):
    """When a job that holds GPUs counts as idle, and the consequences. A cluster without a row has the defaults."""

    cluster = models.OneToOneField("jobs.Cluster", primary_key=True, on_delete=models.CASCADE, related_name="idle_rule")
    enabled = models.BooleanField(default=True)
    utilisation_below = models.FloatField(default=0.05, validators=[MinValueValidator(0.0), MaxValueValidator(1.0)])
    warn_after_s = models.FloatField(default=1_800.0, validators=[MinValueValidator(1.0)])
    #: Null: no job is suspended. By default idle jobs only get a warning.
    release_after_s = models.FloatField(null=True, blank=True, validators=[MinValueValidator(1.0)])
    extension_s = models.FloatField(default=14_400.0, validators=[MinValueValidator(1.0)])
    extensions_max = models.PositiveSmallIntegerField(default=3)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(release_after_s=None) | Q(release_after_s__gte=F("warn_after_s")),
                name="idle_is_warned_first",
            )
        ]

    def __str__(self) -> str:
        return f"idle on {self.cluster_id}"

    @property
    def warn_after(self) -> timedelta:
        return timedelta(seconds=self.warn_after_s)
