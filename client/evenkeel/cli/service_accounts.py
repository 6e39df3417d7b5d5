"""`evenkeel projects service-accounts`: accounts for programs, and their tokens."""

from __future__ import annotations

from typing import get_args

import click

from evenkeel.cli.config import connect
from evenkeel.cli.numbers import WholeNumber
from evenkeel.cli.output import as_json, clean, done, print_json, print_rows, print_value
from evenkeel.cli.tokens import HEADS as TOKEN_HEADS
from evenkeel.client import Client, ClientError, Json
from evenkeel.resources import Role, Scope, given

HEADS = {
    "ID": "id", "NAME": "name", "ROLE": "role", "ACTIVE": "is_active", "TOKENS": "tokens", "MADE": "created_at",
}  # fmt: skip
ROLE = click.Choice(get_args(Role))


@click.group("service-accounts")
def service_accounts() -> None:
    """Accounts for CI and other programs: they sign in with tokens and work in their project and below."""


@service_accounts.command("ls")
@click.argument("project")
@as_json
def ls(project: str, output: str) -> None:
    """Service accounts of a project, newest first."""
    print_rows(connect().projects.service_accounts(project), HEADS, output, none="No service accounts.")


@service_accounts.command()
@click.argument("project")
@click.argument("name")
@click.option("--role", type=ROLE, default="member", show_default=True)
@as_json
def create(project: str, name: str, role: Role, output: str) -> None:
    """A new service account; `create-token` makes what a program signs in with.

    \b
    Examples:
      evenkeel projects service-accounts create vision ci
      evenkeel projects service-accounts create-token vision ci pipeline
    """
    print_value(connect().projects.create_service_account(project, {"name": name, "role": role}), output)


@service_accounts.command("set-role")
@click.argument("project")
@click.argument("name")
@click.argument("role", type=ROLE)
@as_json
def set_role(project: str, name: str, role: Role, output: str) -> None:
    """Give a service account another role."""
    _change(project, name, {"role": role}, output)


@service_accounts.command()
@click.argument("project")
@click.argument("name")
@as_json
def deactivate(project: str, name: str, output: str) -> None:
    """End all its tokens at once, for good; its jobs stay with the project."""
    _change(project, name, {"is_active": False}, output)


@service_accounts.command()
@click.argument("project")
@click.argument("name")
@as_json
def activate(project: str, name: str, output: str) -> None:
    """Activate a service account again; it needs new tokens."""
    _change(project, name, {"is_active": True}, output)


@service_accounts.command()
@click.argument("project")
@click.argument("name")
@as_json
def tokens(project: str, name: str, output: str) -> None:
    """Its tokens; `evenkeel tokens rotate ID` replaces one, `evenkeel tokens revoke ID` ends it."""
    client = connect()
    rows = client.projects.service_tokens(project, _account(client, project, name))
    print_rows(rows, TOKEN_HEADS, output, none="No tokens.")


@service_accounts.command("create-token")
@click.argument("project")
@click.argument("name")
@click.argument("token")
@click.option(
    "--scope", "scopes", multiple=True, type=click.Choice(get_args(Scope)), help="By default jobs:read and jobs:write."
)
@click.option("--below", metavar="KEY", help="A project below: it works there only.")
@click.option(
    "--expires-in-days", type=WholeNumber(1, 366),
    help="By default 90, and no longer than the token that you are logged in with.",
)  # fmt: skip
@as_json
def create_token(
    project: str,
    name: str,
    token: str,
    scopes: tuple[Scope, ...],
    below: str | None,
    expires_in_days: int | None,
    output: str,
) -> None:
    """A token called TOKEN; it is printed once."""
    client = connect()
    wish = {"name": token} | given(expires_in_days=expires_in_days, scopes=list(scopes) or None, project=below)
    made = client.projects.create_service_token(project, _account(client, project, name), wish)
    if output == "json":
        print_json(made)
    else:
        done(f"Token {made['id']} of {name}; it is shown this once:")
        click.echo(made["secret"])


def _change(project: str, name: str, changes: Json, output: str) -> None:
    client = connect()
    account = _account(client, project, name)
    print_value(client.projects.change_service_account(project, account, changes), output)


def _account(client: Client, project: str, name: str) -> int:
    for account in client.projects.service_accounts(project):
        if account["name"] == name:
            return int(account["id"])
    raise ClientError(f"{clean(project)} has no service account {clean(name)}")
