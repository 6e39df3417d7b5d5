"""Invitations: a link for one address, valid once and for a limited time."""

from __future__ import annotations

import hashlib
import secrets
from datetime import datetime, timedelta

from django.contrib.auth.password_validation import validate_password
from django.db import transaction

from accounts.addresses import prove_address
from accounts.audit import record_audit
from accounts.mail_address import checked
from accounts.models import Invitation, Membership, Project, Proof, User
from accounts.selectors import manageable_projects
from accounts.services import add_member

DEFAULT_DAYS = 7
MAX_DAYS = 30


class BadInvitation(Exception):
    """Unknown, used, expired or revoked; which of them is not disclosed."""

    def __init__(self) -> None:
        super().__init__(
            "This invitation is unknown, used, expired or revoked. Ask the person who invited you for another."
        )


class OtherAccount(Exception):
    """The invitation is for another person than the signed-in one, or its person has an account and is not signed
    in."""


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()


@transaction.atomic
def invite(
    *,
    actor: User,
    project: Project,
    email: str,
    role: str,
    now: datetime,
    expires_in_days: int = DEFAULT_DAYS,
    mailed: bool = False,
) -> tuple[Invitation, str]:
    """The invitation and the secret of its link. An earlier open one for the same address and project ends.

    `mailed`: the link is only sent to the address and never shown, so accepting it proves the address. Raises
    ValueError if the address is only another spelling of one.
    """
    email = checked(email)
    open_ones = Invitation.objects.filter(project=project, email__iexact=email, accepted_at=None, revoked_at=None)
    open_ones.update(revoked_at=now)
    secret = secrets.token_urlsafe(32)
    invitation = Invitation.objects.create(
        project=project,
        email=email,
        role=role,
        digest=_digest(secret),
        created_by=actor,
        expires_at=now + timedelta(days=expires_in_days),
        mailed=mailed,
    )
    detail = {"email": email, "role": role, "mailed": mailed, "expires_at": invitation.expires_at.isoformat()}
    record_audit(actor=actor, action="invitation.create", target=project.key, detail=detail)
    return invitation, secret


@transaction.atomic
def revoke_invitation(*, actor: User, invitation: Invitation, now: datetime) -> None:
    open_one = Invitation.objects.filter(pk=invitation.pk, accepted_at=None, revoked_at=None)
    if open_one.update(revoked_at=now):
        detail = {"email": invitation.email}
        record_audit(actor=actor, action="invitation.revoke", target=invitation.project.key, detail=detail)


def find_invitation(secret: str, now: datetime, *, to_accept: bool = False) -> Invitation:
    """Raises BadInvitation. An invitation is valid only while its sender may still send it. `to_accept` locks it."""
    rows = Invitation.objects.select_related("project", "created_by")
    if to_accept:
        rows = rows.select_for_update(of=("self",))
    invitation = rows.filter(digest=_digest(secret), accepted_at=None, revoked_at=None, expires_at__gt=now).first()
    if invitation is None or invitation.project.archived_at:
        raise BadInvitation
    if not manageable_projects(invitation.created_by).filter(pk=invitation.project_id).exists():
        raise BadInvitation
    return invitation


@transaction.atomic
def accept_invitation(
    *, secret: str, user: User | None, now: datetime, name: str = "", password: str = ""
) -> tuple[Invitation, User]:
    """The signed-in user joins, if it is their address; without a session a new account is created.

    Raises BadInvitation, OtherAccount, and ValidationError about the password.
    """
    invitation = find_invitation(secret, now, to_accept=True)
    if user is None:
        user = _create_invited(invitation, name, password)
    elif user.email != User.objects.normalize_email(invitation.email):
        raise OtherAccount(f"The invitation is for {invitation.email}; you are signed in as {user.email}.")
    if invitation.mailed:
        prove_address(user=user, by=Proof.MAIL, now=now)
    Invitation.objects.filter(pk=invitation.pk).update(accepted_at=now, accepted_by=user)
    held = Membership.objects.filter(project=invitation.project, user=user, by_directory=False).first()
    if held is None or held.role != Membership.Role.MANAGER:
        add_member(actor=user, project=invitation.project, user=user, role=invitation.role)
    detail = {"email": invitation.email, "invited_by": invitation.created_by.email}
    record_audit(actor=user, action="invitation.accept", target=invitation.project.key, detail=detail)
    return invitation, user


def _create_invited(invitation: Invitation, name: str, password: str) -> User:
    if User.objects.filter(email=User.objects.normalize_email(invitation.email)).exists():
        raise OtherAccount(f"{invitation.email} has an account: sign in, then open the link again.")
    try:
        user = User(email=checked(invitation.email), first_name=name[:150])
    except ValueError as error:  # created before such addresses were refused
        raise BadInvitation from error
    user.invited_by, user.invited_into = invitation.created_by, invitation.project
    validate_password(password, user)
    user.set_password(password)
    user.save(force_insert=True)
    record_audit(actor=user, action="user.create", target=user.email, detail={"by": "invitation"})
    return user
