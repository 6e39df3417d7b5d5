"""Re-encrypts addresses and secrets with a newer key."""

from __future__ import annotations

from portal.material import encryption
from portal.notices.models import Destination

COLUMNS = ("address_ciphertext", "secret_ciphertext", "old_secret_ciphertext")


def reencrypt_destinations() -> tuple[int, list[str]]:
    """How many use the newest key now, and the names of those that no key decrypts."""
    done, failed = 0, []
    for row in Destination.objects.select_related("user").iterator():
        old = {name: getattr(row, name) for name in COLUMNS}
        try:
            new = {name: encryption.reencrypt(value) if value else "" for name, value in old.items()}
        except encryption.CannotDecrypt:
            failed.append(f"destination {row.pk} of {row.user.email}")
            continue
        # one that was changed meanwhile uses the new key already
        done += Destination.objects.filter(pk=row.pk, **old).update(**new)
    return done, failed
