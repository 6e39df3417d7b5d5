"""`evenkeel limit`."""

from __future__ import annotations

import click

from evenkeel.cli.config import connect
from evenkeel.cli.numbers import WholeNumber
from evenkeel.cli.output import as_json, done, note, print_rows, print_value
from evenkeel.resources import given

HEADS = {
    "ID": "id", "LIMIT": "name", "LEVEL": "level", "USER": "user", "USED": "used", "OF": "limit", "HARD": "hard",
    "ENDS": "period_ends_at",
}  # fmt: skip


@click.group()
def limit() -> None:
    """Limits of projects and users: those that bind your jobs, and setting them."""


@limit.command("ls")
@click.option("--project", help="Limits on this project.")
@click.option("--user", help="Limits on this person (email).")
@as_json
def ls(project: str | None, user: str | None, output: str) -> None:
    """Limits that you may change."""
    print_rows(connect().limits.list(project=project, user=user), HEADS, output, none="No limits.")


@limit.command()
@click.argument("project")
@as_json
def show(project: str, output: str) -> None:
    """Every limit that binds your jobs in a project, of all levels, with its present use."""
    answer = connect().limits.binding(project)
    print_rows(answer["results"], HEADS, output, none="No limits.")
    if answer["more"]:
        note("There are more limits, which are not shown.")


@limit.command("set")
@click.argument("kind", type=click.Choice(["gpus", "running_jobs", "queued_jobs", "gpu_hours", "money"]))
@click.argument("limit")
@click.option("--project", help="Key of the project; projects below count towards it.")
@click.option("--user", help="Email; with a project, only the user's jobs there.")
@click.option("--type", "accelerator_type", help="Of `gpus`: only this accelerator type.")
@click.option("--period", type=click.Choice(["day", "week", "month"]), help="Of `gpu_hours` and `money`.")
@click.option("--hard", is_flag=True, help="Refuse at submission; without it jobs wait.")
@as_json
def set_limit(kind: str, limit: str, hard: bool, output: str, **where: str | None) -> None:
    """Set a limit.

    \b
    Examples:
      evenkeel limit set gpus 8 --project vision
      evenkeel limit set money 2500 --project vision --period month --hard
    """
    print_value(connect().limits.set({"kind": kind, "limit": limit, "hard": hard} | given(**where)), output)


@limit.command()
@click.argument("id", type=WholeNumber())
@click.argument("limit")
@click.option("--hard/--soft", default=None, help="Refuse at submission, or let jobs wait; by default unchanged.")
@as_json
def change(id: int, limit: str, hard: bool | None, output: str) -> None:
    """Give a limit another value."""
    limits = connect().limits
    stays = bool(limits.get(id)["hard"]) if hard is None else hard
    print_value(limits.change(id, limit, hard=stays), output)


@limit.command()
@click.argument("id", type=WholeNumber())
def rm(id: int) -> None:
    """Remove a limit."""
    connect().limits.remove(id)
    done(f"Limit {id} is removed.")
