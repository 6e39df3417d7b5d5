"""`evenkeel audit`, for administrators of the cluster."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any, get_args

import click

from evenkeel.cli.config import connect
from evenkeel.cli.numbers import WholeNumber
from evenkeel.cli.output import as_json, clean, done, print_rows
from evenkeel.resources import AuditFormat

HEADS = {"AT": "at", "WHO": "actor", "DID": "action", "TO": "target", "FROM": "address", "WITH": "credential"}
FILTERS = (
    click.option("--actor", metavar="EMAIL", help="Only what this person did."),
    click.option("--action", help="Such as `token.create`; `token.` matches all that begin with it."),
    click.option("--target", metavar="TEXT", help="Only acts on things with this text in their name."),
    click.option("--address", help="Only from this address."),
    click.option("--request-id", help="The X-Request-ID of an answer."),
    click.option("--from", "from_at", metavar="TIME", help="Not before, as 2026-11-01T00:00:00Z."),
    click.option("--to", "to_at", metavar="TIME", help="Before this moment."),
)


def _filtered(command: Callable[..., None]) -> Callable[..., None]:
    for option in reversed(FILTERS):
        command = option(command)
    return command


@click.group()
def audit() -> None:
    """Audit log: administrative acts, sign-ins and denied accesses; for administrators."""


@audit.command("ls")
@_filtered
@click.option(
    "--limit", type=WholeNumber(min=1), default=50, show_default=True, help="At most this many, newest first."
)
@as_json
def ls(limit: int, output: str, **filters: str | None) -> None:
    """Administrative acts, sign-ins and denied accesses.

    \b
    Examples:
      evenkeel audit ls --action access.denied --limit 20
      evenkeel audit ls --actor ada@example.org --from 2026-11-01T00:00:00Z
    """
    print_rows(islice(connect().audit.list(**filters), limit), HEADS, output, none="No entries.")


@audit.command()
@_filtered
@click.option("--format", type=click.Choice(get_args(AuditFormat)), default="csv", show_default=True)
@click.option("--to-file", type=click.Path(dir_okay=False, path_type=Path), help="By default: standard output.")
def export(format: AuditFormat, to_file: Path | None, **filters: Any) -> None:
    """All that match, oldest first; a line of JSON contains the text that its hash covers."""
    pieces = connect().audit.export(format, **filters)
    if to_file is None:
        for piece in pieces:
            sys.stdout.buffer.write(piece)
        return
    with to_file.open("wb") as sink:
        sink.writelines(pieces)
    done(f"{clean(to_file)}: {to_file.stat().st_size:,} bytes")
