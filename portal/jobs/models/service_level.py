"""QoS levels: priority, which levels they may preempt, who may use them, and their limits.

Import the model from portal.jobs.models.
"""

from __future__ import annotations

from django.core.validators import MaxValueValidator
from django.db import models
from django.db.models import Q

from accounts.models import KEY, Project


class PreemptMode(models.TextChoices):
    """In Slurm's words."""

    REQUEUE = "requeue", "checkpointed and queued again"
    CANCEL = "cancel", "ended"


class Qos(models.Model):
    """One level. Empty limits do not apply; limits per user count each user's jobs of the level."""

    name = models.CharField(max_length=40, unique=True, validators=[KEY])
    priority = models.PositiveIntegerField(default=0, validators=[MaxValueValidator(1_000_000)])
    #: What happens to its own jobs when they are preempted.
    preempt_mode = models.CharField(max_length=10, choices=PreemptMode, default="requeue")
    preempts = models.ManyToManyField("self", symmetrical=False, blank=True, related_name="preempted_by")
    #: Who may use it: everybody, or users who may submit to one of these projects or their subprojects.
    for_everybody = models.BooleanField(default=True)
    projects = models.ManyToManyField(Project, blank=True, related_name="qos_levels")
    max_gpus = models.PositiveIntegerField(null=True, blank=True)
    max_running_jobs = models.PositiveIntegerField(null=True, blank=True)
    max_gpus_per_user = models.PositiveIntegerField(null=True, blank=True)
    max_running_jobs_per_user = models.PositiveIntegerField(null=True, blank=True)
    #: The level of jobs that name none.
    is_default = models.BooleanField(default=False)

    class Meta:
        ordering = ["-priority", "name"]
        constraints = [
            models.UniqueConstraint(fields=["is_default"], condition=Q(is_default=True), name="one_default_qos")
        ]

    def __str__(self) -> str:
        return self.name
