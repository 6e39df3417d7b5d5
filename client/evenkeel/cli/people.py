"""`evenkeel people`, for administrators of the cluster."""

from __future__ import annotations

import click

from evenkeel import schemas
from evenkeel.cli.config import connect
from evenkeel.cli.output import as_json, clean, only_row, print_rows, print_value
from evenkeel.cli.unproved import confirm_option, confirmed
from evenkeel.client import Json

HEADS = {
    "ID": "id", "EMAIL": "email", "NAME": "name", "KIND": "kind", "ADMIN": "is_admin", "ACTIVE": "is_active",
    "LAST SIGN-IN": "last_sign_in_at", "ADDRESS PROVED": "address_proved_by",
    "ACCOUNT": "unix_account",
}  # fmt: skip


@click.group()
def people() -> None:
    """People with an account; for administrators."""


@people.command("ls")
@click.option("--search", metavar="TEXT", help="Only those with this text in name or email.")
@click.option("--admins", is_flag=True, help="Only administrators of the cluster.")
@click.option("--inactive", is_flag=True, help="Only deactivated accounts.")
@as_json
def ls(search: str | None, admins: bool, inactive: bool, output: str) -> None:
    """People and service accounts, newest first."""
    found = connect().people.list(
        search=search, is_admin="true" if admins else None, is_active="false" if inactive else None
    )
    rows = [{**row, "address_proved_by": _proved_by(row)} for row in found] if output == "table" else found
    print_rows(rows, HEADS, output, none="Nobody.")


def _proved_by(row: schemas.Account) -> str | None:
    """As `projects members` says it; a service account has no address to prove."""
    return row["address_proved_by"] or ("no" if row["kind"] == "person" else None)


@people.command()
@click.argument("email")
@as_json
def deactivate(email: str, output: str) -> None:
    """End a person's tokens and sessions at once; their jobs stay with the projects."""
    _change(email, {"is_active": False}, output)


@people.command()
@click.argument("email")
@as_json
def activate(email: str, output: str) -> None:
    """Let a person sign in again; they need new tokens."""
    _change(email, {"is_active": True}, output)


@people.command()
@click.argument("email")
@click.argument("name", required=False)
@click.option("--none", "unset", is_flag=True, help="Remove the UNIX account.")
@as_json
def account(email: str, name: str | None, unset: bool, output: str) -> None:
    """Set the UNIX account NAME that a person's jobs run as, on clusters that run jobs as people."""
    if bool(name) == unset:
        raise click.UsageError("give the name of the account, or --none")
    _change(email, {"unix_account": name or ""}, output)


@people.command()
@click.argument("email")
@click.argument("state", type=click.Choice(["on", "off"]))
@confirm_option
@as_json
def admin(email: str, state: str, confirm_unproved: bool, output: str) -> None:
    """Make a person an administrator of the cluster, or no longer one."""
    change: Json = {"is_admin": state == "on"}
    confirmed(lambda sure: _change(email, change | {"confirm_unproved": sure}, output), at_once=confirm_unproved)


def _change(email: str, changes: Json, output: str) -> None:
    everybody = connect().people
    person = only_row(
        everybody.list(email=email),  # compared in the portal's one form of addresses
        f"there is no account with the address {clean(email)}; accepting an invitation creates one",
    )
    print_value(everybody.change(person["id"], changes), output)
