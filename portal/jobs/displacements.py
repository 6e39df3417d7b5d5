"""Who took GPUs from a run, at which level, and what it had: a row each time. Import it from portal.jobs.models."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.utils import timezone


class Displacement(models.Model):
    """Written in the transaction of the decision that took them; the run's own reason goes on to say why it waits."""

    class Kind(models.TextChoices):
        PREEMPTED = "preempted"
        SHRUNK = "shrunk"

    run = models.ForeignKey("jobs.Run", on_delete=models.CASCADE, related_name="displacements")
    at = models.DateTimeField(default=timezone.now)
    kind = models.CharField(max_length=10, choices=Kind)
    #: The reason of that decision.
    token = models.CharField(max_length=60)
    text = models.TextField()
    level = models.CharField(max_length=200)
    accelerator_type = models.CharField(max_length=60)
    gpus_before = models.PositiveIntegerField()
    gpus_after = models.PositiveIntegerField(default=0)
    #: Numbers of the jobs that got its GPUs; at most a few are kept.
    taken_by = ArrayField(models.BigIntegerField(), default=list)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.run_id} {self.kind} at {self.at:%F %T}"
