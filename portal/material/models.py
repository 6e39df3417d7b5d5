"""Inputs and outputs of jobs: bundles, environments, secrets, artifacts, and their quotas."""

from __future__ import annotations

from django.conf import settings
from django.core.validators import RegexValidator
from django.db import models
from django.db.models import Q
from django.utils import timezone

from accounts.models import Project
from portal.jobs.models import Cluster, Run

SHA256 = RegexValidator(r"^[0-9a-f]{64}\Z", "64 hexadecimal digits.")
SECRET_NAME = RegexValidator(
    r"^[A-Za-z][A-Za-z0-9_.-]{0,63}\Z", "must be a letter, then letters, digits and _ . -, 64 characters at most"
)


class Bundle(models.Model):
    """An uploaded archive of a project. The file itself is stored once, under its digest."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="bundles")
    sha256 = models.CharField(max_length=64, validators=[SHA256])
    size_bytes = models.BigIntegerField()
    unpacked_bytes = models.BigIntegerField()
    files = models.PositiveIntegerField()
    uploaded_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    created_at = models.DateTimeField(default=timezone.now)
    last_used_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["-id"]
        constraints = [models.UniqueConstraint(fields=["project", "sha256"], name="one_bundle_per_digest")]
        indexes = [models.Index(fields=["sha256"])]

    def __str__(self) -> str:
        return self.sha256[:12]


class Environment(models.Model):
    """Requirements on top of the portal's packages, built once per digest."""

    class State(models.TextChoices):
        BUILDING = "building"
        READY = "ready"
        FAILED = "failed"

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="environments")
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="environments")
    digest = models.CharField(max_length=64, validators=[SHA256])
    requirements = models.TextField()
    base = models.CharField(max_length=200)
    state = models.CharField(max_length=10, choices=State, default=State.BUILDING)
    #: Incremented when a failed one is requested again.
    attempt = models.PositiveIntegerField(default=1)
    error = models.TextField(blank=True, default="")
    size_bytes = models.BigIntegerField(default=0)
    created_at = models.DateTimeField(default=timezone.now)
    finished_at = models.DateTimeField(null=True)
    last_used_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(fields=["project", "cluster", "digest"], name="one_environment_per_digest")
        ]

    def __str__(self) -> str:
        return f"{self.digest[:12]} {self.state}"


class Secret(models.Model):
    """A value that people can set and jobs can use, but that cannot be read back."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="secrets")
    name = models.CharField(max_length=64, validators=[SECRET_NAME])
    description = models.CharField(max_length=200, blank=True, default="")
    ciphertext = models.TextField(editable=False)
    created_at = models.DateTimeField(default=timezone.now)
    changed_at = models.DateTimeField(default=timezone.now)
    changed_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["project", "name"], name="one_secret_per_name")]

    def __str__(self) -> str:
        return self.name


class RunMaterial(models.Model):
    """A run's inputs, and the progress of collecting its outputs."""

    class Collecting(models.TextChoices):
        NOT_YET = ""
        WORKING = "working"
        DONE = "done"
        FAILED = "failed"

    run = models.OneToOneField(Run, primary_key=True, on_delete=models.CASCADE, related_name="material")
    environment = models.ForeignKey(Environment, null=True, on_delete=models.SET_NULL, related_name="runs")
    commit = models.CharField(max_length=64, blank=True, default="")
    code_ready = models.BooleanField(default=False)
    code_bytes = models.BigIntegerField(default=0)
    next_look_at = models.DateTimeField(default=timezone.now)
    collecting = models.CharField(max_length=10, choices=Collecting, blank=True, default=Collecting.NOT_YET)
    left_out = models.PositiveIntegerField(default=0)
    #: How often collecting failed for a temporary reason.
    failed_looks = models.PositiveSmallIntegerField(default=0)

    def __str__(self) -> str:
        return f"material of {self.run_id}"


class Artifact(models.Model):
    """A file that a run left. `removed_at`: its file is about to be removed, or has been."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="artifacts")
    path = models.CharField(max_length=500)
    size_bytes = models.BigIntegerField()
    sha256 = models.CharField(max_length=64)
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField()
    removed_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-id"]
        constraints = [models.UniqueConstraint(fields=["run", "path"], name="one_artifact_per_path")]
        indexes = [
            models.Index(fields=["expires_at"]),
            models.Index(fields=["removed_at"], condition=Q(removed_at__isnull=False), name="artifact_to_remove"),
        ]

    def __str__(self) -> str:
        return self.path


class StorageQuota(models.Model):
    """A project's own storage limits. Null: as in the settings; 0: no limit."""

    project = models.OneToOneField(Project, primary_key=True, on_delete=models.CASCADE, related_name="storage_quota")
    checkpoints_soft_bytes = models.BigIntegerField(null=True)
    checkpoints_hard_bytes = models.BigIntegerField(null=True)
    bundles_bytes = models.BigIntegerField(null=True)
    artifacts_bytes = models.BigIntegerField(null=True)
    #: When people were notified that the soft limit is exceeded; null otherwise.
    warned_at = models.DateTimeField(null=True, editable=False)

    def __str__(self) -> str:
        return f"storage of {self.project_id}"
