"""Lists of jobs that somebody named. Import the model from portal.jobs.models."""

from __future__ import annotations

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.utils import timezone


class SavedView(models.Model):
    """Of one user, who alone sees it. `filters` are what the API's list takes; empty `columns`: the reader's own."""

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="saved_views")
    name = models.CharField(max_length=60)
    filters = models.JSONField(default=dict)
    ordering = models.CharField(max_length=20, default="-number")
    columns = ArrayField(models.CharField(max_length=20), default=list)
    changed_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["owner", "name"], name="one_view_per_name")]

    def __str__(self) -> str:
        return self.name
