"""The Unix account of a person or service account, where jobs run under it: none until it is set."""

from __future__ import annotations

import logging
import os
import pwd
import re

from django.conf import settings
from django.db import transaction

from accounts.audit import record_audit
from accounts.models import AccountSource, User

logger = logging.getLogger(__name__)

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}")


class BadAccount(Exception):
    """It cannot be a person's; with a sentence."""


def check_name(name: str) -> None:
    """Raises BadAccount unless it may be a person's on this machine: never root, the portal's own, or a system
    account."""
    if not NAME.fullmatch(name):
        raise BadAccount("is no name of a UNIX account")
    try:
        found = pwd.getpwnam(name)
    except (KeyError, ValueError):
        raise BadAccount(f"does not exist on the portal's machine (`getent passwd {name}` finds nothing)") from None
    if found.pw_name != name:
        raise BadAccount(f"is spelt {found.pw_name} there")
    lowest: int = settings.EVENKEEL_ACCOUNT_MIN_UID
    if found.pw_uid < lowest or found.pw_gid == 0:
        raise BadAccount(f"is an account of the system: its uid is {found.pw_uid}, and people's begin at {lowest}")
    if found.pw_uid == os.geteuid():
        raise BadAccount("is the portal's own account")


def suggestion_for(user: User) -> str | None:
    """The local part of a proved address. It has no effect until an administrator confirms it."""
    local = user.email.partition("@")[0]
    if user.unix_account or user.kind != User.Kind.PERSON or user.address_proved_at is None:
        return None
    return local if NAME.fullmatch(local) else None


@transaction.atomic
def set_unix_account(*, actor: User | None, user: User, name: str, source: AccountSource | None = None) -> None:
    """Empty: the person has none any more. Raises BadAccount. Started jobs keep theirs."""
    if source is None:
        source = AccountSource.SAME_NAME if name and name == suggestion_for(user) else AccountSource.ADMINISTRATOR
    before = User.objects.select_for_update().get(pk=user.pk).unix_account
    if before == name:
        return
    if name:
        check_name(name)
        other = User.objects.filter(unix_account=name).exclude(pk=user.pk).first()
        if other is not None:
            raise BadAccount(f"is {other.email}'s")
    by = source.value if name else ""
    User.objects.filter(pk=user.pk).update(unix_account=name, unix_account_by=by)
    user.refresh_from_db(fields=["unix_account", "unix_account_by"])
    detail = {"before": before, "now": name, "by": source.value}
    record_audit(actor=actor, action="user.unix_account", target=user.email, detail=detail)


def follow_claim(*, user: User, name: str) -> None:
    """The identity provider's value at a sign-in. One set by an administrator stays."""
    if user.unix_account and user.unix_account_by != AccountSource.IDENTITY_PROVIDER:
        return
    try:
        set_unix_account(actor=user, user=user, name=name, source=AccountSource.IDENTITY_PROVIDER)
    except BadAccount as error:
        logger.warning("the identity provider says that %s is %.40r, which %s", user.email, name, error)
