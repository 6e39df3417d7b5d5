"""Proved addresses of accounts, and warnings before an account is trusted for an unproved one."""

from __future__ import annotations

from datetime import datetime

from allauth.account.models import EmailAddress
from django.db.models.signals import post_save
from django.dispatch import receiver

from accounts.audit import record_audit
from accounts.models import Proof, User


class Unproved(Exception):
    """The account may not belong to the owner of its address; trusting it needs a confirmation."""

    def __init__(self, user: User) -> None:
        super().__init__(provenance(user))


def is_proved(user: User) -> bool:
    """Service accounts have no address that a person could claim."""
    return user.address_proved_at is not None or user.kind == User.Kind.SERVICE


def is_doubtful(user: User) -> bool:
    """Anyone with the invitation's link could create the account; only its sender knows who had it. Accounts created by
    administrators are unproved too, and marked, but administrators know for whom they created them."""
    return not is_proved(user) and (user.invited_by_id is not None or user.invited_into_id is not None)


def check_proved(user: User, *, confirmed: bool) -> None:
    """Before the account gets a role or rights because of its address. Raises Unproved."""
    if not confirmed and is_doubtful(user):
        raise Unproved(user)


def provenance(user: User) -> str:
    """One sentence on the origin of an account with an unproved address."""
    if not is_doubtful(user):
        return "An administrator made the account or changed its address; the address was never proved."
    into = f" into {user.invited_into.name}" if user.invited_into else ""
    by = f" by {user.invited_by.email}" if user.invited_by else ""
    return f"The account was made by invitation{into}{by}; the address was never proved."


def prove_address(*, user: User, by: Proof, now: datetime) -> None:
    """The provider's confirmation outranks a message; later ones change nothing."""
    if user.address_proved_by in (by, Proof.IDENTITY_PROVIDER):
        return
    User.objects.filter(pk=user.pk).update(address_proved_at=now, address_proved_by=by)
    user.address_proved_at, user.address_proved_by = now, by
    record_audit(actor=user, action="user.address_proved", target=user.email, detail={"by": by.value})


@receiver(post_save, sender=User)
def forget_other_addresses(sender: type[User], instance: User, created: bool, **kwargs: object) -> None:
    """Sign-in through the provider also finds people by these: a former address must no longer lead to the account."""
    if not created:
        EmailAddress.objects.filter(user=instance).exclude(email__iexact=instance.email).delete()
