"""What was said of jobs' starts, and how long they then waited: what expected starts are calibrated on.

Import the model from portal.jobs.models.
"""

from __future__ import annotations

from django.db import models
from django.db.models import Q


class StartSample(models.Model):
    """One forecast for one waiting job. Pruned by age and by number (portal.jobs.forecasting)."""

    cluster = models.ForeignKey("jobs.Cluster", on_delete=models.CASCADE, related_name="start_samples")
    job = models.ForeignKey("jobs.Job", on_delete=models.CASCADE, related_name="start_samples")
    made_at = models.DateTimeField()
    #: As the futures had it, before calibration.
    p10_s = models.FloatField()
    p50_s = models.FloatField()
    p90_s = models.FloatField()
    #: Until it was given GPUs, or ended without; empty while it waits.
    waited_s = models.FloatField(null=True)
    started = models.BooleanField(default=False)

    class Meta:
        indexes = [
            models.Index(fields=["cluster", "-made_at"]),
            models.Index(fields=["job"], condition=Q(waited_s=None), name="start_sample_open"),
        ]

    def __str__(self) -> str:
        return f"{self.job_id} at {self.made_at:%F %T}"
