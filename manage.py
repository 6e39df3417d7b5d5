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

    from portal.config.env import BadSetting
    from portal.config.setup_errors import SetupError, unreachable

    # Commands are named as people type them; their modules cannot be.
    name = [word.replace("-", "_") for word in sys.argv[1:2] if not word.startswith("-")]
    try:
        execute_from_command_line([*sys.argv[:1], *(name or sys.argv[1:2]), *sys.argv[2:]])
    except (BadSetting, SetupError) as error:
        sys.exit(str(error))
    except OperationalError as error:
        if connection.connection is not None or "--traceback" in sys.argv:
            raise
        sys.exit(unreachable(str(error)))


if __name__ == "__main__":
    main()
