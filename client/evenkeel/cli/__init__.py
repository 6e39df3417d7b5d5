"""The command line `evenkeel`."""

import sys


def run() -> None:
    """The program; Ctrl-C while it is still being loaded ends it without a traceback, too."""
    try:
        from evenkeel.cli.main import cli
    except KeyboardInterrupt:
        sys.exit(130)
    cli()
