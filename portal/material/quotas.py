"""A project's storage limits: its own, or those of the settings. 0: no limit."""

from __future__ import annotations

from django.conf import settings

from accounts.models import Project
from portal.material.models import StorageQuota


def _own(project: Project, name: str, default: int) -> int:
    value = StorageQuota.objects.filter(project=project).values_list(name, flat=True).first()
    return default if value is None else int(value)


def bundle_quota_bytes(project: Project) -> int:
    return _own(project, "bundles_bytes", settings.EVENKEEL_MATERIAL.bundle_quota_bytes)


def artifact_quota_bytes(project: Project) -> int:
    return _own(project, "artifacts_bytes", settings.EVENKEEL_MATERIAL.artifact_quota_bytes)


def checkpoint_soft_bytes(project: Project) -> int:
    return _own(project, "checkpoints_soft_bytes", settings.EVENKEEL_MATERIAL.checkpoint_soft_bytes)


def checkpoint_hard_bytes(project: Project) -> int:
    return _own(project, "checkpoints_hard_bytes", settings.EVENKEEL_MATERIAL.checkpoint_hard_bytes)
