"""Changes of people and service accounts: administrators, and activity."""

from __future__ import annotations

import re
from datetime import datetime

from django.db import transaction

from accounts.audit import record_audit
from accounts.models import ApiToken, Membership, Project, User
from accounts.sessions import end_sessions

_NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")
#: No address can exist there (RFC 2606), so no mail goes astray and no person can claim the account.
SERVICE_DOMAIN = "service.invalid"


class LastAdministrator(Exception):
    """There must always be an administrator."""


class NotForServiceAccounts(Exception):
    """A service account is managed by its project only."""


class NameTaken(Exception):
    """The project has a service account of that name."""


def _lock_administrators() -> None:
    """Two administrators who revoke each other wait here, so that one remains."""
    list(User.objects.select_for_update().filter(is_superuser=True).order_by("pk").values_list("pk"))


def check_another(user: User) -> None:
    """Raises LastAdministrator."""
    if not User.objects.filter(is_superuser=True, is_active=True).exclude(pk=user.pk).exists():
        raise LastAdministrator(f"{user} is the only active administrator; make another person one first.")


@transaction.atomic
def set_administrator(*, actor: User | None, user: User, administrator: bool, by_directory: bool = False) -> None:
    """Raises LastAdministrator, NotForServiceAccounts. `by_directory`: because of the person's groups."""
    if user.kind == User.Kind.SERVICE:
        raise NotForServiceAccounts("A service account cannot administer the cluster.")
    _lock_administrators()
    user.refresh_from_db(fields=["is_superuser"])
    if user.is_superuser == administrator:
        return
    if not administrator:
        check_another(user)
    from_groups = administrator and by_directory
    User.objects.filter(pk=user.pk).update(
        is_superuser=administrator, is_staff=administrator, admin_by_directory=from_groups
    )
    user.refresh_from_db(fields=["is_superuser", "is_staff", "admin_by_directory"])
    action = "user.admin_granted" if administrator else "user.admin_revoked"
    record_audit(actor=actor, action=action, target=user.email, detail={"by_directory": by_directory})


@transaction.atomic
def deactivate_user(*, actor: User | None, user: User, now: datetime) -> None:
    """Tokens and sessions end at once; jobs stay with their projects. Raises LastAdministrator."""
    _lock_administrators()
    if not User.objects.filter(pk=user.pk, is_active=True).exists():
        return
    if user.is_superuser:
        check_another(user)
    User.objects.filter(pk=user.pk).update(is_active=False, deactivated_at=now)
    tokens = ApiToken.objects.filter(user=user, revoked_at=None).update(revoked_at=now)
    sessions = end_sessions(user)
    user.refresh_from_db(fields=["is_active", "deactivated_at"])
    detail = {"tokens": tokens, "sessions": sessions}
    record_audit(actor=actor, action="user.deactivate", target=user.email, detail=detail)


@transaction.atomic
def reactivate_user(*, actor: User | None, user: User) -> None:
    """The person may sign in again; tokens must be created anew."""
    if User.objects.filter(pk=user.pk, is_active=False).update(is_active=True, deactivated_at=None):
        user.refresh_from_db(fields=["is_active", "deactivated_at"])
        record_audit(actor=actor, action="user.reactivate", target=user.email)


@transaction.atomic
def create_service_account(*, actor: User, project: Project, name: str, role: str) -> User:
    """An account for programs: it cannot sign in, only has tokens, and is limited to its project and subprojects."""
    if not _NAME.fullmatch(name):
        raise ValueError("must be lower-case letters, digits and dashes, and begin with a letter")
    email = f"{name}@{project.key}.{SERVICE_DOMAIN}"
    if User.objects.filter(email=email).exists():
        raise NameTaken(f"{project.name} has a service account {name} already.")
    account = User(email=email, first_name=name, kind=User.Kind.SERVICE, project=project)
    account.set_unusable_password()
    account.save(force_insert=True)
    Membership.objects.create(project=project, user=account, role=role)
    record_audit(actor=actor, action="service_account.create", target=email, detail={"role": role})
    return account


@transaction.atomic
def set_service_role(*, actor: User, account: User, role: str) -> None:
    if Membership.objects.filter(user=account, project=account.project_id).exclude(role=role).update(role=role):
        record_audit(actor=actor, action="service_account.role", target=account.email, detail={"role": role})
