"""The first sign-in of an existing account through the identity provider: from then on it belongs to the person named
by the provider. The person who created it before knows its password and may have left other ways in."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from allauth.socialaccount.models import SocialAccount
from django.db import transaction
from django.dispatch import Signal

from accounts.addresses import is_proved
from accounts.audit import record_audit
from accounts.models import ApiToken, Invitation, User
from accounts.sessions import end_sessions

#: Sent in the transaction, with `user` and `now`; receivers end what they hold of the account and return its name and
#: number, for the audit log.
account_connected = Signal()


@transaction.atomic
def connect_account(*, user: User, now: datetime) -> None:
    """End everything that could act for the account before. Roles stay: they were given to the address; so do its
    jobs."""
    user = User.objects.select_for_update().get(pk=user.pk)
    detail: dict[str, object] = {
        "address_was_proved": is_proved(user),
        "invited_by": user.invited_by.email if user.invited_by else None,
        "password": user.has_usable_password(),
        "tokens": ApiToken.objects.filter(user=user, revoked_at=None).update(revoked_at=now),
        "sessions": end_sessions(user),
        "invitations": Invitation.objects.filter(created_by=user, accepted_at=None, revoked_at=None).update(
            revoked_at=now
        ),
        "identities": SocialAccount.objects.filter(user=user).delete()[0],
    }
    ended: list[tuple[Any, Any]] = account_connected.send(sender=User, user=user, now=now)
    detail |= dict(counted for _, counted in ended)
    user.set_unusable_password()
    user.save(update_fields=["password"])
    record_audit(actor=user, action="user.connected", target=user.email, detail=detail)
