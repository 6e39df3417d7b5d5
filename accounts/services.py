"""Changes to people and projects, each with its audit entry."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from accounts.audit import record_audit as record_audit
from accounts.models import Membership, Project, Quota, Rate, User


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
    """Give or change a role. One that the person's groups give stands beside it: the higher counts."""
    membership, _ = Membership.objects.update_or_create(
        project=project, user=user, by_directory=False, defaults={"role": role}
    )
    record_audit(actor=actor, action="project.member", target=project.key, detail={"user": user.email, "role": role})
    return membership


class RateNotAfter(Exception):
    """A price must begin after the one that it follows."""


def check_follows(accelerator_type: str, valid_from: datetime | None) -> None:
    newest = Rate.objects.filter(accelerator_type=accelerator_type).order_by("-valid_from").first()
    if newest and valid_from and valid_from <= newest.valid_from:
        raise RateNotAfter(f"A price from {newest.valid_from:%F %H:%M} on is known; the next one begins later.")


@transaction.atomic
def set_rate(*, actor: User | None, rate: Rate) -> Rate:
    """A new price for a type; the one in force ends when it begins. Raises RateNotAfter."""
    check_follows(rate.accelerator_type, rate.valid_from)
    Rate.objects.filter(accelerator_type=rate.accelerator_type, valid_to=None).update(valid_to=rate.valid_from)
    rate.valid_to = None
    rate.save(force_insert=True)
    detail = {"price_micro_per_gpu_hour": rate.price_micro_per_gpu_hour, "valid_from": rate.valid_from.isoformat()}
    record_audit(actor=actor, action="rate.set", target=rate.accelerator_type, detail=detail)
    return rate
