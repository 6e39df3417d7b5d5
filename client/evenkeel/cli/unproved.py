"""Asks before an account with an unproved address is trusted: it may not belong to the address's owner."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeVar

import click

from evenkeel.cli.output import clean
from evenkeel.client import ApiError

T = TypeVar("T")
confirm_option = click.option(
    "--confirm-unproved", is_flag=True, help="Do not ask about an account whose address was never proved."
)


def confirmed(call: Callable[[bool], T], *, at_once: bool) -> T:
    """What `call` answers; it is called again with True once the person has confirmed at a terminal."""
    try:
        return call(at_once)
    except ApiError as error:
        said = [one.message for one in error.errors if one.code == "unproved"]
        if not said:
            raise
        if not sys.stdin.isatty():
            message = f"{clean(said[0])} Pass --confirm-unproved if you know whose account it is."
            raise click.ClickException(message) from None
        click.confirm(f"{clean(said[0])} Did they tell you that the account is theirs?", abort=True, err=True)
        return call(True)
