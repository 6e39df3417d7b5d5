"""Errors that stop a command of the portal, in words for the person at the terminal."""

from __future__ import annotations

import contextlib
import os
import pwd
from pathlib import Path

from django.conf import settings


class SetupError(Exception):
    """Why the portal cannot start, in one sentence for the person at the terminal."""


def unreachable(error: str) -> str:
    """Advice for an unreachable database. With embedded servers the usual causes are that they are not running, that
    EVENKEEL_DATA differs from the portal's, or another account than the portal's, for example root."""
    if os.environ.get("DATABASE_URL"):
        asked = "start the portal first"
    elif owner := other_owner(Path(settings.EVENKEEL_DATA)):
        asked = f"{settings.EVENKEEL_DATA} (EVENKEEL_DATA) belongs to {owner}: run this command as that account"
    else:
        asked = f"start the portal first; the data directory is {settings.EVENKEEL_DATA} (EVENKEEL_DATA)"
    return f"The database cannot be reached: {asked}. ({error.splitlines()[0]})"


def other_owner(path: Path) -> str:
    """The owner of a directory if this process has another account; "" otherwise."""
    try:
        uid = path.stat().st_uid
    except OSError:
        return ""
    if uid == os.geteuid():
        return ""
    with contextlib.suppress(KeyError):
        return pwd.getpwuid(uid).pw_name
    return f"account {uid}"
