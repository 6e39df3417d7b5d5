#!/usr/bin/env python
"""Django's command line: `manage.py up`, `manage.py demo`, `manage.py solve`, ..."""

import os
import sys


def main() -> None:
    try:
        _run()
    except KeyboardInterrupt:  # while it imports or writes, say; `up` ends what it started itself
        sys.stderr.write("\nInterrupted.\n")
        sys.exit(130)


def _run() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")
    from django.core.management import execute_from_command_line
    from django.db import OperationalError, connection

    from portal.env import BadSetting
    from portal.supervisor.errors import SetupError

    # Commands are named as people type them; their modules cannot be.
    name = [word.replace("-", "_") for word in sys.argv[1:2] if not word.startswith("-")]
    try:
        execute_from_command_line([*sys.argv[:1], *(name or sys.argv[1:2]), *sys.argv[2:]])
    except (BadSetting, SetupError) as error:
        sys.exit(str(error))
    except OperationalError as error:
        if connection.connection is not None or "--traceback" in sys.argv:
            raise
        sys.exit(_unreachable(str(error)))


def _unreachable(error: str) -> str:
    from django.conf import settings

    asked = (
        "" if os.environ.get("DATABASE_URL") else f"; the data directory is {settings.EVENKEEL_DATA} (EVENKEEL_DATA)"
    )
    return f"The database cannot be reached: start the portal first{asked}. ({error.splitlines()[0]})"


if __name__ == "__main__":
    main()
