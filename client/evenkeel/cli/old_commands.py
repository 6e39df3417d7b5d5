"""Commands under their old names: hidden, and one line on standard error says the new name."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import wraps
from typing import Any

import click

from evenkeel.cli.output import note
from evenkeel.renamed import COMMANDS, sentence


def add_old_commands(root: click.Group) -> None:
    for old, new in COMMANDS.items():
        *groups, name = old.split()
        parent, alias = _find(root, groups), copy(_find(root, new.split()))
        assert isinstance(parent, click.Group)
        alias.name, alias.hidden = name, True
        alias.callback = _saying(alias.callback, sentence(f"`evenkeel {old}`", f"`evenkeel {new}`"))
        parent.add_command(alias)


def _find(command: click.Command, path: list[str]) -> click.Command:
    for name in path:
        assert isinstance(command, click.Group)
        command = command.commands[name]
    return command


def _saying(callback: Callable[..., Any] | None, said: str) -> Callable[..., Any]:
    assert callback is not None

    @wraps(callback)
    def call(*args: Any, **options: Any) -> Any:
        note(said)
        return callback(*args, **options)

    return call
