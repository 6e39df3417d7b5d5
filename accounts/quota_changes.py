"""Who may set which limits, and setting them. Every change is audited."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import PermissionDenied
from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet

from accounts.audit import record_audit
from accounts.models import Membership, Project, Quota, User
from accounts.quotas import level_of, name_of
from accounts.selectors import manageable_projects, visible_projects


class QuotaExists(Exception):
    """A level has one limit of each kind; the existing one can be changed."""


def manageable_quotas(user: User) -> QuerySet[Quota]:
    """Limits that the user may change: all for administrators; for managers those of projects below theirs, and of
    users within theirs."""
    rows = Quota.objects.select_related("project", "user")
    if user.is_superuser:
        return rows
    mine = manageable_projects(user)
    return rows.filter(Q(user__isnull=False, project__in=mine) | Q(user=None, project__parent__in=mine))


def check_may_set(actor: User, project: Project | None, user: User | None) -> None:
    """Project.DoesNotExist if the actor may not see the project, PermissionDenied if they may not do this."""
    if project is not None and not visible_projects(actor).filter(pk=project.pk).exists():
        raise Project.DoesNotExist
    if actor.is_superuser:
        return
    if project is None:
        raise PermissionDenied("Only administrators of the cluster set limits on a user everywhere.")
    above = project.pk if user is not None else project.parent_id
    if above is None or not manageable_projects(actor).filter(pk=above).exists():
        raise PermissionDenied("Managers set limits on the projects below theirs, and on users within theirs.")


def known_user(actor: User, email: str, project: Project | None) -> User | None:
    """The person with the address, if the actor may know of them: administrators know all, managers the members of the
    project and of those above and below it."""
    people = User.objects.filter(email=User.objects.normalize_email(email))
    if not actor.is_superuser and project is not None:
        near = Project.objects.filter(Q(ancestry__contains=[project.pk]) | Q(pk__in=project.ancestry))
        people = people.filter(pk__in=Membership.objects.filter(project__in=near).values("user"))
    return people.first()


@transaction.atomic
def add_quota(*, actor: User | None, quota: Quota) -> Quota:
    """Raises QuotaExists."""
    try:
        with transaction.atomic():
            quota.save(force_insert=True)
    except IntegrityError:
        raise QuotaExists(f"There is a limit of {name_of(quota)} on {level_of(quota)} already; change that.") from None
    _audit(actor, "quota.create", quota, {"after": _values(quota)})
    return quota


@transaction.atomic
def change_quota(*, actor: User | None, quota: Quota, limit: int, hard: bool) -> Quota:
    quota = Quota.objects.select_for_update(of=("self",)).select_related("project", "user").get(pk=quota.pk)
    before = _values(quota)
    quota.limit, quota.hard = limit, hard
    quota.save(update_fields=["limit", "hard"])
    _audit(actor, "quota.change", quota, {"before": before, "after": _values(quota)})
    return quota


@transaction.atomic
def remove_quota(*, actor: User | None, quota: Quota) -> None:
    before = _values(quota)
    Quota.objects.filter(pk=quota.pk).delete()
    _audit(actor, "quota.delete", quota, {"before": before})


def _values(quota: Quota) -> dict[str, Any]:
    return {"limit": quota.limit, "hard": quota.hard}


def _audit(actor: User | None, action: str, quota: Quota, detail: dict[str, Any]) -> None:
    detail = {
        "project": quota.project.key if quota.project else None,
        "user": quota.user.email if quota.user else None,
        "kind": quota.kind,
        "accelerator_type": quota.accelerator_type,
        "period": quota.period,
        **detail,
    }
    record_audit(actor=actor, action=action, target=f"{name_of(quota)} on {level_of(quota)}", detail=detail)
