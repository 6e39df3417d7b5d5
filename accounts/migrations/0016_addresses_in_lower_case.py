"""Addresses in lower case, one account each.

Of accounts whose addresses differ by case only, one keeps the address: one that was proved before others, then the one
that signed in last. The others keep all they have, but under an address of their own that says so, and unproved.
"""

import logging
from collections import defaultdict
from datetime import UTC, datetime
from typing import Any

from django.db import migrations, models
from django.db.models import Q
from django.db.models.functions import Lower

logger = logging.getLogger(__name__)
_NEVER = datetime.min.replace(tzinfo=UTC)


def write_in_lower_case(apps: Any, schema_editor: Any) -> None:
    users = apps.get_model("accounts", "User").objects
    same = defaultdict(list)
    for user in users.all():
        same[user.email.lower()].append(user)
    for address, found in same.items():
        found.sort(key=lambda one: (bool(one.address_proved_by), one.last_login or _NEVER, -one.pk), reverse=True)
        for other in found[1:]:
            name, _, domain = address.rpartition("@")
            end = f".account-{other.pk}@{domain}"
            apart = name[: 254 - len(end)] + end
            logger.warning("account %d (%s) is %s now: %s is one too", other.pk, other.email, apart, found[0].email)
            users.filter(pk=other.pk).update(email=apart, address_proved_at=None, address_proved_by="")
            apps.get_model("account", "EmailAddress").objects.filter(user_id=other.pk).delete()
        if found[0].email != address:
            users.filter(pk=found[0].pk).update(email=address)
    apps.get_model("accounts", "Invitation").objects.exclude(email=Lower("email")).update(email=Lower("email"))


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0015_proved_addresses"),
        ("account", "0009_emailaddress_unique_primary_email"),
    ]

    operations = [
        migrations.RunPython(write_in_lower_case, migrations.RunPython.noop),
        migrations.AddConstraint(
            "user",
            models.CheckConstraint(condition=Q(email=Lower("email")), name="addresses_are_in_lower_case"),
        ),
    ]
