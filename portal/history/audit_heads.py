"""The head of the audit log, stored outside the database: a truncated or rewritten log no longer contains it."""

from __future__ import annotations

import os

from django.conf import settings
from django.utils import timezone

from accounts.audit import chain_head
from portal.core.times import iso


def note_head() -> None:
    """Append a line TIME POSITION:HASH to DATA/logs/audit_heads.log; a year of hours is 1 MB."""
    path = settings.EVENKEEL_DATA / "logs" / "audit_heads.log"
    path.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    with os.fdopen(file, "w") as log:
        log.write(f"{iso(timezone.now())} {chain_head()}\n")
