"""Changes to people and projects, each with its audit entry."""

from __future__ import annotations

from django.db import transaction

from accounts.audit import record_audit as record_audit
from accounts.models import Membership, Project, Quota, User


@transaction.atomic
def create_project(
    *, actor: User | None, key: str, name: str, gpu_quota: int | None = None, parent: Project | None = None
) -> Project:
    project = Project(key=key, name=name, parent=parent)
    project.full_clean()
    project.save()
    if gpu_quota is not None:
        Quota.objects.create(project=project, limit=gpu_quota)
    detail = {"gpu_quota": gpu_quota, "parent": parent.key if parent else None}
    record_audit(actor=actor, action="project.create", target=key, detail=detail)
    return project


@transaction.atomic
def add_member(*, actor: User | None, project: Project, user: User, role: str) -> Membership:
    """Give or change a role. One from the person's groups exists beside it: the higher counts."""
    membership, _ = Membership.objects.update_or_create(
        project=project, user=user, by_directory=False, defaults={"role": role}
    )
    record_audit(actor=actor, action="project.member", target=project.key, detail={"user": user.email, "role": role})
    return membership
