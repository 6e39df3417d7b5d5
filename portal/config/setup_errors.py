"""Why a command of the portal cannot go on, in words for the person at the terminal."""

from __future__ import annotations

import contextlib
import os
import pwd
from pathlib import Path

from django.conf import settings


class SetupError(Exception):
    """Why the portal cannot start, in one sentence for the person at the terminal."""


def unreachable(error: str) -> str:
    """What to do where the database does not answer. With embedded servers the usual reasons are that they are not
    started, that EVENKEEL_DATA is not what the portal has, and another account than the portal's: of root, say."""
    if os.environ.get("DATABASE_URL"):
        asked = "start the portal first"
    elif owner := other_owner(Path(settings.EVENKEEL_DATA)):
        asked = f"{settings.EVENKEEL_DATA} (EVENKEEL_DATA) belongs to {owner}: run this command as that account"
    else:
        asked = f"start the portal first; the data directory is {settings.EVENKEEL_DATA} (EVENKEEL_DATA)"
    return f"The database cannot be reached: {asked}. ({error.splitlines()[0]})"


def other_owner(path: Path) -> str:
    """The account that a directory belongs to where this process has another; "" otherwise."""
    try:
        uid = path.stat().st_uid
    except OSError:
        return ""
    if uid == os.geteuid():
        return ""
    with contextlib.suppress(KeyError):
        return pwd.getpwuid(uid).pw_name
    return f"account {uid}"
