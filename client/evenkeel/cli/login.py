"""`evenkeel login`."""

from __future__ import annotations

import ipaddress
import os
import socket
import sys
from typing import get_args
from urllib.parse import urlsplit

import click

from evenkeel.cli.config import Login, store_login
from evenkeel.cli.numbers import WholeNumber
from evenkeel.cli.output import note
from evenkeel.client import Client, ClientError
from evenkeel.resources import Scope

SCOPES: tuple[Scope, ...] = ("jobs:read", "jobs:write")


@click.command()
@click.argument("url", required=False)
@click.option("--token", help="An API token; - reads it from standard input.")
@click.option("--email", help="Sign in with a password and have a token made.")
@click.option("--password-stdin", is_flag=True, help="Read the password from standard input.")
@click.option("--expires-in-days", type=WholeNumber(1, 366), default=90, show_default=True)
@click.option(
    "--scope", "scopes", multiple=True, type=click.Choice(get_args(Scope)), help="By default jobs:read and jobs:write."
)
@click.option("--project", metavar="KEY", help="The token works in this project and below it only.")
@click.option("--admin", is_flag=True, help="The token may also change projects, members, limits, prices and secrets.")
def login(
    url: str | None,
    token: str | None,
    email: str | None,
    password_stdin: bool,
    expires_in_days: int,
    scopes: tuple[Scope, ...],
    project: str | None,
    admin: bool,
) -> None:
    """Store the address of a portal and a token for it.

    They are stored in ~/.config/evenkeel, readable by you alone.

    \b
    Examples:
      evenkeel login https://evenkeel.example.org                  asks for email and password
      evenkeel login https://evenkeel.example.org --token -        reads a token from standard input
      evenkeel login https://evenkeel.example.org --scope jobs:read --project vision
      EVENKEEL_URL=... EVENKEEL_TOKEN=... evenkeel ls              in CI: no login needed
    """
    if token is not None and (scopes or project or admin):
        raise click.UsageError("--scope, --project and --admin are for a token that is made, not for one that you have")
    url = _complete(url or os.environ.get("EVENKEEL_URL") or click.prompt("URL of the portal"))
    if token is None:
        wanted = (*(scopes or SCOPES), "admin") if admin else scopes or SCOPES
        token = _token_for(url, email, password_stdin, expires_in_days=expires_in_days, scopes=wanted, project=project)
    elif token == "-":  # noqa: S105
        token = sys.stdin.readline().strip()
    with Client(url, token) as client:
        user = client.session().get("user")
    if not user:
        raise ClientError(f"{url} does not accept this token")
    path = store_login(Login(url, token))
    click.echo(f"Logged in to {url} as {user['email']} (stored in {path}).")


def _token_for(
    url: str,
    email: str | None,
    password_stdin: bool,
    *,
    expires_in_days: int,
    scopes: tuple[str, ...],
    project: str | None,
) -> str:
    email = email or click.prompt("Email")
    if password_stdin:  # noqa: SIM108
        password = sys.stdin.readline().rstrip("\r\n")
    else:
        password = click.prompt("Password", hide_input=True)
    with Client(url) as client:
        name = f"evenkeel on {socket.gethostname()}"
        return client.create_token(
            str(email), password, name=name, expires_in_days=expires_in_days, scopes=scopes, project=project
        )


def _complete(url: str) -> str:
    if "://" not in url:
        url = ("http://" if _is_local(url.partition("/")[0].partition(":")[0]) else "https://") + url
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise click.UsageError(f"{url!r} is not an http or https address")
    if parts.scheme == "http" and not _is_local(parts.hostname):
        note("Warning: over http the token can be read on the way: use https.")
    return url.rstrip("/")


def _is_local(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
