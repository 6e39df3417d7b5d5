"""`evenkeel qos`."""

from __future__ import annotations

from typing import Any

import click

from evenkeel.cli.config import connect
from evenkeel.cli.numbers import WholeNumber
from evenkeel.cli.output import as_json, done, print_rows, print_value
from evenkeel.resources import given

HEADS = {
    "NAME": "name", "PRIORITY": "priority", "PREEMPTS": "preempts", "ON PREEMPTION": "preempt_mode",
    "EVERYBODY": "for_everybody", "PROJECTS": "projects", "GPUS": "max_gpus", "JOBS": "max_running_jobs",
    "GPUS/USER": "max_gpus_per_user", "JOBS/USER": "max_running_jobs_per_user", "DEFAULT": "is_default",
}  # fmt: skip
LIMIT = WholeNumber(min=0)


@click.group()
def qos() -> None:
    """QoS levels: their priority, the levels that they preempt, and their limits."""


@qos.command("ls")
@as_json
def ls(output: str) -> None:
    """All levels."""
    print_rows(connect().qos.list(), HEADS, output, none="No QoS levels.")


@qos.command("set")
@click.argument("name")
@click.option("--priority", type=WholeNumber(min=0), default=0, show_default=True)
@click.option("--preempts", multiple=True, metavar="LEVEL", help="Level that it may preempt; may be repeated.")
@click.option(
    "--preempt-mode",
    type=click.Choice(["requeue", "cancel"]),
    default="requeue",
    show_default=True,
    help="What happens to its own jobs when they are preempted.",
)
@click.option("--project", "projects", multiple=True, help="Only for this project and below; may be repeated.")
@click.option("--max-gpus", type=LIMIT, help="GPUs at once, of all its jobs.")
@click.option("--max-running-jobs", type=LIMIT)
@click.option("--max-gpus-per-user", type=LIMIT)
@click.option("--max-running-jobs-per-user", type=LIMIT)
@click.option("--default", "is_default", is_flag=True, help="The default level.")
@as_json
def set_(name: str, preempts: tuple[str, ...], projects: tuple[str, ...], output: str, **values: Any) -> None:
    """Make a level or change all of it; omitted options get their defaults.

    \b
    Examples:
      evenkeel qos set normal --default
      evenkeel qos set high --priority 100 --preempts normal --max-gpus-per-user 4
    """
    wish = given(**values) | {
        "preempts": list(preempts),
        "projects": list(projects),
        "for_everybody": not projects,
    }
    print_value(connect().qos.set(name, wish), output)


@qos.command()
@click.argument("name")
def rm(name: str) -> None:
    """Remove a level without live jobs."""
    connect().qos.remove(name)
    done(f"Level {name} is removed.")
