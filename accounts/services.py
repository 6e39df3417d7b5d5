"""Changes to people and projects, each with its audit entry."""

from __future__ import annotations

from typing import Any

from django.db import transaction

from accounts.models import AuditEntry, Membership, Project, Quota, User


def record_audit(*, actor: User | None, action: str, target: str, detail: dict[str, Any] | None = None) -> AuditEntry:
    return AuditEntry.objects.create(actor=actor, action=action, target=target[:200], detail=detail or {})


@transaction.atomic
def create_project(*, actor: User | None, key: str, name: str, gpu_quota: int | None = None) -> Project:
    project = Project(key=key, name=name)
    project.full_clean()
    project.save()
    if gpu_quota is not None:
        Quota.objects.create(project=project, limit=gpu_quota)
    record_audit(actor=actor, action="project.create", target=key, detail={"gpu_quota": gpu_quota})
    return project


@transaction.atomic
def add_member(*, actor: User | None, project: Project, user: User, role: str) -> Membership:
    membership, _ = Membership.objects.update_or_create(project=project, user=user, defaults={"role": role})
    record_audit(actor=actor, action="project.member", target=project.key, detail={"user": user.email, "role": role})
    return membership
