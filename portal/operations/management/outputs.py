"""Checks of commands' output options before long work begins."""

from __future__ import annotations

import os
from pathlib import Path

from django.core.management.base import CommandError

STANDARD_OUTPUT = Path("-")


def check_file(option: str, path: Path) -> None:
    """Raises CommandError if it cannot be written. It is opened, as permissions are not conclusive for /proc, or for
    root."""
    new = not path.exists()
    if not new and not path.is_file() and not path.is_dir():
        return  # a reader of the pipe would see its end once it was opened and closed
    try:
        path.open("a").close()
        if new:
            path.unlink()
    except OSError as error:
        raise CommandError(unwritable(option, path, error)) from None


def check_folder(option: str, path: Path) -> None:
    """Created if missing. Raises CommandError if that fails or it is not writable."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandError(unwritable(option, path, error)) from None
    if not os.access(path, os.W_OK | os.X_OK):
        raise CommandError(f"{option} {path}: cannot be written: Permission denied.")


def unwritable(option: str, path: Path, error: OSError) -> str:
    return f"{option} {path}: cannot be written: {error.strerror or error}."


def check_value(option: str, value: float, right: bool, bounds: str) -> None:
    if not right:
        raise CommandError(f"{option} must be {bounds}, and is {value:,.10g}.")
