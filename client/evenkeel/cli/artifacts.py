"""`evenkeel artifacts`."""

from __future__ import annotations

import sys
import time
from pathlib import Path, PurePosixPath

import click

from evenkeel import schemas
from evenkeel.cli.config import connect
from evenkeel.cli.going_on import going_on
from evenkeel.cli.output import as_json, clean, done, print_rows
from evenkeel.cli.waiting import EXIT_CODES, POLL_S
from evenkeel.client import ApiError, Client

LISTED_S = 120.0


@click.group()
def artifacts() -> None:
    """Files that jobs left in their artifact directories."""


@artifacts.command("ls")
@click.argument("job")
@as_json
def ls(job: str, output: str) -> None:
    """Files of a job."""
    heads = {"PATH": "path", "BYTES": "bytes", "ATTEMPT": "attempt", "MADE": "created_at", "KEPT UNTIL": "expires_at"}
    client = connect()
    none = "No artifacts." if _await_complete(client, job) else "No artifacts yet: the job has not ended."
    print_rows(client.artifacts.list(job), heads, output, none=none)


@artifacts.command()
@click.argument("job")
@click.argument("path")
@click.option("--to", "target", metavar="FILE|-", help="Where to write it; by default the file's own name, here.")
def get(job: str, path: str, target: str | None) -> None:
    """Download a file; `--to -` writes it to standard output."""
    client = connect()
    pieces = client.artifacts.download(job, _find(client, job, path)["id"])
    if target == "-":
        for piece in pieces:
            sys.stdout.buffer.write(piece)
        return
    file = Path(target or PurePosixPath(path).name)
    with going_on(f"{clean(file)} is incomplete."), file.open("wb") as sink:
        sink.writelines(pieces)
    done(f"{clean(file)}: {file.stat().st_size:,} bytes")


@artifacts.command()
@click.argument("job")
@click.argument("path")
def rm(job: str, path: str) -> None:
    """Delete a file."""
    client = connect()
    client.artifacts.delete(job, _find(client, job, path)["id"])
    done(f"{clean(path)} is deleted.")


def _await_complete(client: Client, job: str) -> bool:
    """Whether no more will come: what a job left is listed some seconds after its end, and is waited for."""
    until = time.monotonic() + LISTED_S
    while not client.artifacts.are_complete(job):
        if client.job(job)["state"] not in EXIT_CODES or time.monotonic() > until:
            return False
        time.sleep(POLL_S)
    return True


def _find(client: Client, job: str, path: str) -> schemas.Artifact:
    _await_complete(client, job)
    found = [a for a in client.artifacts.list(job) if a["path"] == path]
    if not found:
        raise ApiError(404, "Not found", f"job {job} has no artifact {path}", [])
    return max(found, key=lambda artifact: int(artifact["attempt"]))
