"""`evenkeel secrets`. Values go in and never come out again."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from evenkeel.cli.config import connect
from evenkeel.cli.output import as_json, done, print_rows


@click.group()
def secrets() -> None:
    """Secrets of a project: injected into its jobs, never shown."""


@secrets.command("ls")
@click.argument("project")
@as_json
def ls(project: str, output: str) -> None:
    """Names of a project's secrets."""
    heads = {"NAME": "name", "DESCRIPTION": "description", "CHANGED": "changed_at", "BY": "changed_by"}
    print_rows(connect().secrets.list(project), heads, output, none="No secrets.")


@secrets.command("set")
@click.argument("project")
@click.argument("name")
@click.option("--from-file", type=click.Path(exists=True, dir_okay=False), help="Read the value from a file.")
@click.option("--description", help="What it is for.")
def set_secret(project: str, name: str, from_file: str | None, description: str | None) -> None:
    """Store a secret, or change it.

    The value is asked for, or read from standard input or a file: never an argument, which other users could see.

    \b
    Examples:
      evenkeel secrets set vision HF_TOKEN
      pass show hub | evenkeel secrets set vision HF_TOKEN
    """
    connect().secrets.set(project, name, _value(from_file), description=description)
    done(f"{name} is stored.")


@secrets.command()
@click.argument("project")
@click.argument("name")
def rm(project: str, name: str) -> None:
    """Remove a secret; jobs that need it fail at their next launch."""
    connect().secrets.delete(project, name)
    done(f"{name} is removed.")


def _value(from_file: str | None) -> str:
    if from_file:
        return Path(from_file).read_text(encoding="utf-8")
    if sys.stdin.isatty():
        return str(click.prompt("Value", hide_input=True, err=True))
    return sys.stdin.read().removesuffix("\n")
