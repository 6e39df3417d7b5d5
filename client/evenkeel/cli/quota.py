"""`evenkeel quota`."""

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
def quota() -> None:
    """Limits: what binds you, and setting them."""


@quota.command("ls")
@click.option("--project", help="Limits on this project.")
@click.option("--user", help="Limits on this person (email).")
@as_json
def ls(project: str | None, user: str | None, output: str) -> None:
    """Limits that you may change."""
    print_rows(connect().quotas.list(project=project, user=user), HEADS, output, none="No limits.")


@quota.command()
@click.argument("project")
@as_json
def show(project: str, output: str) -> None:
    """Every limit that binds your jobs in a project, of all levels, with its present use."""
    answer = connect().quotas.binding(project)
    print_rows(answer["results"], HEADS, output, none="Nothing limits it.")
    if answer["more"]:
        note("There are more limits further in, which are not shown.")


@quota.command("set")
@click.argument("kind", type=click.Choice(["gpus", "running_jobs", "queued_jobs", "gpu_hours", "money"]))
@click.argument("limit")
@click.option("--project", help="Key of the project that it sits on; all below count too.")
@click.option("--user", help="Email; with a project, only the user's jobs there.")
@click.option("--type", "accelerator_type", help="Of `gpus`: only this accelerator type.")
@click.option("--period", type=click.Choice(["day", "week", "month"]), help="Of `gpu_hours` and `money`.")
@click.option("--hard", is_flag=True, help="Refuse at submission; without it jobs wait.")
@as_json
def set_limit(kind: str, limit: str, hard: bool, output: str, **where: str | None) -> None:
    """Set a limit.

    \b
    Examples:
      evenkeel quota set gpus 8 --project vision
      evenkeel quota set money 2500 --project vision --period month --hard
    """
    print_value(connect().quotas.set({"kind": kind, "limit": limit, "hard": hard} | given(**where)), output)


@quota.command()
@click.argument("id", type=WholeNumber())
@click.argument("limit")
@click.option("--hard/--soft", default=None, help="Refuse at submission, or let jobs wait; by default as it was.")
@as_json
def change(id: int, limit: str, hard: bool | None, output: str) -> None:
    """Give a limit another value."""
    quotas = connect().quotas
    stays = bool(quotas.get(id)["hard"]) if hard is None else hard
    print_value(quotas.change(id, limit, hard=stays), output)


@quota.command()
@click.argument("id", type=WholeNumber())
def rm(id: int) -> None:
    """Remove a limit."""
    connect().quotas.remove(id)
    done(f"Limit {id} is removed.")
