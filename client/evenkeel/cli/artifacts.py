"""`evenkeel artifacts`."""

from __future__ import annotations

import sys
from pathlib import Path, PurePosixPath

import click

from evenkeel import schemas
from evenkeel.cli.config import connect
from evenkeel.cli.output import as_json, clean, done, print_rows
from evenkeel.client import ApiError, Client


@click.group()
def artifacts() -> None:
    """Files that jobs left."""


@artifacts.command("ls")
@click.argument("job")
@as_json
def ls(job: str, output: str) -> None:
    """Files of a job."""
    heads = {"PATH": "path", "BYTES": "bytes", "ATTEMPT": "attempt", "MADE": "created_at", "KEPT UNTIL": "expires_at"}
    print_rows(connect().artifacts.list(job), heads, output, none="No artifacts.")


@artifacts.command()
@click.argument("job")
@click.argument("path")
@click.option("--to", "target", metavar="FILE|-", help="Where to; by default the file's own name, here.")
def get(job: str, path: str, target: str | None) -> None:
    """Download a file; `--to -` writes it to standard output."""
    client = connect()
    pieces = client.artifacts.download(job, _find(client, job, path)["id"])
    if target == "-":
        for piece in pieces:
            sys.stdout.buffer.write(piece)
        return
    file = Path(target or PurePosixPath(path).name)
    with file.open("wb") as sink:
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


def _find(client: Client, job: str, path: str) -> schemas.Artifact:
    found = [a for a in client.artifacts.list(job) if a["path"] == path]
    if not found:
        raise ApiError(404, "Not found", f"job {job} has no artifact {path}", [])
    return max(found, key=lambda artifact: int(artifact["attempt"]))
