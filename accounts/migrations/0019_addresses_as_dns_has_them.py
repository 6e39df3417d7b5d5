"""The domains of addresses as DNS has them, one account each.

Of accounts whose addresses differ by the spelling of the domain only, one keeps the address: one that was proved before
others, then the one that signed in last. The others keep all they have, under an address of their own, and unproved.
"""

import logging
from collections import defaultdict
from datetime import UTC, datetime
from typing import Any

import idna
from django.db import migrations

logger = logging.getLogger(__name__)
_NEVER = datetime.min.replace(tzinfo=UTC)


def normalized(address: str) -> str:
    name, at, domain = address.lower().rpartition("@")
    domain = domain.removesuffix(".")
    if at and not domain.isascii():
        try:
            domain = idna.encode(domain, uts46=True).decode()
        except UnicodeError:
            return f"{name}@{domain}"
    return f"{name}{at}{domain}"


def write_as_dns_has_them(apps: Any, schema_editor: Any) -> None:
    users = apps.get_model("accounts", "User").objects
    known = apps.get_model("account", "EmailAddress").objects
    same = defaultdict(list)
    for user in users.all():
        same[normalized(user.email)].append(user)
    for address, found in same.items():
        found.sort(key=lambda one: (bool(one.address_proved_by), one.last_login or _NEVER, -one.pk), reverse=True)
        for other in found[1:]:
            name, _, domain = address.rpartition("@")
            end = f".account-{other.pk}@{domain}"
            apart = name[: 254 - len(end)] + end
            logger.warning("account %d (%s) is %s now: %s is one too", other.pk, other.email, apart, found[0].email)
            users.filter(pk=other.pk).update(email=apart, address_proved_at=None, address_proved_by="")
            known.filter(user_id=other.pk).delete()
        if found[0].email != address and len(address) <= 254:
            users.filter(pk=found[0].pk).update(email=address)
            known.filter(user_id=found[0].pk).delete()  # the account's own address finds it
    for invitation in apps.get_model("accounts", "Invitation").objects.filter(accepted_at=None, revoked_at=None):
        address = normalized(invitation.email)
        if address != invitation.email and len(address) <= 254:
            type(invitation).objects.filter(pk=invitation.pk).update(email=address)


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0018_unix_accounts"),
        ("account", "0009_emailaddress_unique_primary_email"),
    ]

    operations = [migrations.RunPython(write_as_dns_has_them, migrations.RunPython.noop)]
