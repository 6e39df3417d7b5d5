"""`manage.py rotate_secrets`: creates a new key, and re-encrypts every secret with it, those of notifications too."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from accounts.services import record_audit
from portal.material import encryption
from portal.material.models import Secret
from portal.notices.transport.reencryption import reencrypt_destinations


class Command(BaseCommand):
    help = "Encrypts every secret with a new key. With EVENKEEL_SECRET_KEYS, put the new key first there yourself."

    def handle(self, *args: Any, **options: Any) -> None:
        own_file = not settings.EVENKEEL_SECRET_KEYS
        if own_file:
            encryption.add_key()
        done, failed = 0, []
        for secret in Secret.objects.select_related("project").iterator():
            try:
                ciphertext = encryption.reencrypt(secret.ciphertext)
            except encryption.CannotDecrypt:
                failed.append(f"{secret.project.key}/{secret.name}")
                continue
            # one that was set again meanwhile uses the new key already
            done += Secret.objects.filter(pk=secret.pk, ciphertext=secret.ciphertext).update(ciphertext=ciphertext)
        destinations, closed = reencrypt_destinations()
        done, failed = done + destinations, failed + closed
        if own_file and not failed:
            encryption.drop_old_keys()
        record_audit(actor=None, action="secret.rotate", target="all", detail={"secrets": done, "failed": len(failed)})
        self.stdout.write(f"{done} secrets are under the newest key.")
        for name in failed:
            self.stderr.write(f"{name} cannot be opened with any key: set its value again.")
