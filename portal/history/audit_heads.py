"""The head of the audit log, noted beside the database: a log that was cut or written anew no longer has it."""

from __future__ import annotations

import os

from django.conf import settings
from django.utils import timezone

from accounts.audit import chain_head
from portal.core.times import iso


def note_head() -> None:
    """One more line TIME POSITION:HASH in DATA/logs/audit_heads.log; a year of hours is 1 MB."""
    path = settings.EVENKEEL_DATA / "logs" / "audit_heads.log"
    path.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    with os.fdopen(file, "w") as log:
        log.write(f"{iso(timezone.now())} {chain_head()}\n")
