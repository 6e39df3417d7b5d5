"""Packages that only some commands need."""

from __future__ import annotations

from importlib.util import find_spec

from django.core.management.base import CommandError


def require_extra(module: str, extra: str, what: str) -> None:
    """Raises CommandError where `module`, of the extra `extra` in pyproject.toml, is not installed. It is found, not
    imported: that takes seconds."""
    if find_spec(module) is None:
        raise CommandError(f"{what} needs {module}: pip install -r requirements-{extra}.lock (the extra `{extra}`)")
