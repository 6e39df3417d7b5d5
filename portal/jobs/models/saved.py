"""Job templates and saved views."""

from __future__ import annotations

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.utils import timezone

from accounts.models import Project


class JobTemplate(models.Model):
    """Of one user, or of a project. `file` is as written: keys that it omits stay open."""

    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.CASCADE, related_name="job_templates"
    )
    project = models.ForeignKey(Project, null=True, on_delete=models.CASCADE, related_name="job_templates")
    author = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    name = models.CharField(max_length=60)
    description = models.CharField(max_length=300, blank=True, default="")
    file = models.JSONField()
    changed_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["owner", "name"], condition=Q(owner__isnull=False), name="one_own_template_per_name"
            ),
            models.UniqueConstraint(
                fields=["project", "name"], condition=Q(project__isnull=False), name="one_project_template_per_name"
            ),
            models.CheckConstraint(
                condition=Q(owner=None, project__isnull=False) | Q(owner__isnull=False, project=None),
                name="template_is_somebodys_or_a_projects",
            ),
        ]

    def __str__(self) -> str:
        return self.name


class SavedView(models.Model):
    """Visible to one user only. `filters` are those of the API's list; empty `columns`: the reader's own."""

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
