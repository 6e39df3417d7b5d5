"""Addresses and secrets under a newer key."""

from __future__ import annotations

from portal.material import encryption
from portal.notices.models import Destination

COLUMNS = ("address_ciphertext", "secret_ciphertext", "old_secret_ciphertext")


def reencrypt_destinations() -> tuple[int, list[str]]:
    """How many are under the newest key now, and the names of those that no key opens."""
    done, failed = 0, []
    for row in Destination.objects.select_related("user").iterator():
        old = {name: getattr(row, name) for name in COLUMNS}
        try:
            new = {name: encryption.reencrypt(value) if value else "" for name, value in old.items()}
        except encryption.CannotDecrypt:
            failed.append(f"destination {row.pk} of {row.user.email}")
            continue
        # One that was changed meanwhile is under the new key already.
        done += Destination.objects.filter(pk=row.pk, **old).update(**new)
    return done, failed
