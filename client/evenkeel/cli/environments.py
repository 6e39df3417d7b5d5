"""`evenkeel environments`."""

from __future__ import annotations

import time

import click

from evenkeel.cli.config import connect
from evenkeel.cli.going_on import going_on
from evenkeel.cli.numbers import WholeNumber
from evenkeel.cli.output import as_json, clean, done, print_json, print_rows, shown_log
from evenkeel.client import ApiError, Client, ClientError
from evenkeel.program_output import ShownText

FOLLOW_S = 1.0
HEADS = {"DIGEST": "digest", "STATE": "state", "BYTES": "bytes", "MADE": "created_at", "LAST USED": "last_used_at"}


@click.group()
def environments() -> None:
    """Packages that a project's jobs asked for, built once and kept."""


@environments.command("ls")
@click.argument("project")
@as_json
def ls(project: str, output: str) -> None:
    """Environments of a project, newest first."""
    print_rows(connect().environments.list(project), HEADS, output, none="No environments.")


@environments.command()
@click.argument("project")
@click.argument("digest")
@click.option("--follow", "-f", is_flag=True, help="Follow until the build has ended.")
@click.option("--tail", type=WholeNumber(min=1), metavar="LINES", help="Start so many lines before the end.")
@as_json
def log(project: str, digest: str, follow: bool, tail: int | None, output: str) -> None:
    """Print the log of a build; the first digits of the digest are enough.

    \b
    Examples:
      evenkeel environments log vision 9f86d081 --tail 40
      evenkeel environments log vision 9f86d081 -f
    """
    client = connect()
    name = _whole(client, project, digest)
    query = {"tail": tail} if tail else {"offset": 0}
    if output == "json":
        print_json(client.environments.log(project, name, **query))
        return
    with going_on("The build is still running; jobs that need it start after it."), shown_log() as text:
        _print_log(client, project, name, query, follow=follow, text=text)


def _print_log(
    client: Client, project: str, name: str, query: dict[str, int], *, follow: bool, text: ShownText
) -> None:
    while True:
        answer = client.environments.log(project, name, **query)
        click.echo(text.feed(answer["text"]), nl=False, color=True)
        at, more = int(answer["next_offset"]), answer["next_offset"] < answer["size"]
        if answer["complete"] or not (more or follow):
            return
        if not more:
            time.sleep(FOLLOW_S)
        query = {"offset": at}


@environments.command()
@click.argument("project")
@click.argument("digest")
def rm(project: str, digest: str) -> None:
    """Remove an environment; the next job that asks for it builds it again."""
    client = connect()
    client.environments.delete(project, _whole(client, project, digest))
    done(f"Environment {digest} is removed.")


def _whole(client: Client, project: str, digest: str) -> str:
    if len(digest) == 64:
        return digest
    found = [str(row["digest"]) for row in client.environments.list(project) if row["digest"].startswith(digest)]
    if not found:
        raise ApiError(404, "Not found", f"{clean(project)} has no environment {clean(digest)}", [])
    if len(found) > 1:
        raise ClientError(f"{len(found)} environments of {clean(project)} begin with {clean(digest)}: give more of it")
    return found[0]
