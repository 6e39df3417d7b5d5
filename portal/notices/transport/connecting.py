"""Disables the destinations of an account that is connected by single sign-on: another person may have created them."""

from __future__ import annotations

from datetime import datetime

from django.dispatch import receiver

from accounts.connecting import account_connected
from accounts.models import User
from portal.notices.deliveries import give_up_waiting
from portal.notices.models import Destination

WHY = "The account was first connected by single sign-on. If this is yours, rotate its secret and turn it on again."


@receiver(account_connected)
def disable_destinations(sender: object, user: User, now: datetime, **kwargs: object) -> tuple[str, int]:
    """Disabled, not removed: their owner sees what there was."""
    rows = list(Destination.objects.select_for_update(of=("self",)).filter(user=user, enabled=True))
    for row in rows:
        row.enabled, row.disabled_why = False, WHY
        row.save(update_fields=["enabled", "disabled_why"])
        give_up_waiting(row, now)
    return "destinations", len(rows)
