"""`evenkeel tokens`. New ones are made by `evenkeel login`, or on the portal's page: a token makes no tokens."""

from __future__ import annotations

import click

from evenkeel.cli.config import connect
from evenkeel.cli.numbers import WholeNumber
from evenkeel.cli.output import as_json, done, print_json, print_rows

HEADS = {
    "ID": "id", "NAME": "name", "PREFIX": "prefix", "SCOPES": "scopes", "PROJECT": "project",
    "EXPIRES": "expires_at", "REVOKED": "revoked_at", "LAST USED": "last_used_at",
}  # fmt: skip


@click.group()
def tokens() -> None:
    """Your API tokens; `evenkeel login` makes one."""


@tokens.command("ls")
@as_json
def ls(output: str) -> None:
    """Tokens that still work."""
    print_rows(connect().tokens.list(), HEADS, output, none="No tokens.")


@tokens.command()
@click.argument("id", type=WholeNumber())
@click.option(
    "--overlap-hours",
    type=WholeNumber(min=0),
    default=24,
    show_default=True,
    help="How long the old one still works.",
)
@as_json
def rotate(id: int, overlap_hours: int, output: str) -> None:
    """Replace a token of a service account that you manage.

    `evenkeel projects service-accounts tokens` lists them. The new one has the same rights and lifetime; the old one
    keeps working for a while. A token cannot prolong your own tokens: make another with `evenkeel login`, or on the
    portal's page.
    """
    made = connect().tokens.rotate(id, overlap_hours=overlap_hours)
    if output == "json":
        print_json(made)
    else:
        done(f"Token {made['id']} takes the place of {id}; it is shown this once:")
        click.echo(made["secret"])


@tokens.command()
@click.argument("id", type=WholeNumber())
def revoke(id: int) -> None:
    """End a token at once."""
    connect().tokens.revoke(id)
    done(f"Token {id} no longer works.")
