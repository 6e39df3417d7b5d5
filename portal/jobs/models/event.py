"""Events of jobs, nodes and projects."""

from __future__ import annotations

from django.db import models
from django.utils import timezone

from accounts.models import Project
from portal.jobs.models.job import Job
from portal.jobs.models.run import Run


class JobEvent(models.Model):
    """What happened, for people and for streams. Never changed; one partition per month (portal.jobs.event_months),
    whose database key is (id, at)."""

    at = models.DateTimeField(default=timezone.now)
    kind = models.CharField(max_length=40)
    job = models.ForeignKey(Job, null=True, on_delete=models.CASCADE, related_name="events")
    run = models.ForeignKey(Run, null=True, on_delete=models.CASCADE, related_name="events")
    project = models.ForeignKey(Project, null=True, on_delete=models.CASCADE)
    from_state = models.CharField(max_length=40, blank=True, default="")
    to_state = models.CharField(max_length=40, blank=True, default="")
    text = models.TextField()
    detail = models.JSONField(default=dict)

    class Meta:
        ordering = ["-id"]
        indexes = [models.Index(fields=["job", "-id"]), models.Index(fields=["project", "-id"])]

    def __str__(self) -> str:
        return self.text
