"""What goes on when a command that follows or waits is interrupted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def going_on(text: str) -> Iterator[None]:
    """Ctrl-C, SIGTERM and SIGHUP in here are reported with this text."""
    try:
        yield
    except KeyboardInterrupt as error:
        error.add_note(text)
        raise
