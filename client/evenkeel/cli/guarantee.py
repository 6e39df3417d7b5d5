"""`evenkeel guarantee`."""

from __future__ import annotations

import click

from evenkeel.cli.config import connect
from evenkeel.cli.numbers import WholeNumber
from evenkeel.cli.output import as_json, done, print_rows, print_value
from evenkeel.resources import given

HEADS = {
    "PROJECT": "project", "GPUS": "gpus", "USED": "used", "BORROWED": "borrowed", "UNUSED": "unused",
    "RECLAIM WITHIN S": "reclaim_within_s",
}  # fmt: skip


@click.group()
def guarantee() -> None:
    """GPUs that projects are guaranteed; others may borrow them meanwhile."""


@guarantee.command("ls")
@as_json
def ls(output: str) -> None:
    """What projects are guaranteed and use."""
    print_rows(connect().guarantees.list(), HEADS, output, none="No project that you see is guaranteed GPUs.")


@guarantee.command("set")
@click.argument("project")
@click.argument("gpus", type=WholeNumber(min=1))
@click.option("--type", "types", multiple=True, metavar="TYPE=GPUS", help="How many are of one type; may be repeated.")
@click.option("--reclaim-within", type=WholeNumber(min=0), metavar="SECONDS", help="By default 300.")
@as_json
def set_(project: str, gpus: int, types: tuple[str, ...], reclaim_within: int | None, output: str) -> None:
    """Guarantee a project GPUs.

    \b
    Examples:
      evenkeel guarantee set speech 8
      evenkeel guarantee set speech 8 --type a100=4 --reclaim-within 120
    """
    wish = {"gpus": gpus, "by_type": dict(map(_part, types))} | given(reclaim_within_s=reclaim_within)
    print_value(connect().guarantees.set(project, wish), output)


def _part(text: str) -> tuple[str, int]:
    name, equals, count = text.rpartition("=")
    if not (equals and name and count.isdigit()):
        raise click.BadParameter(f"{text!r} is not TYPE=GPUS, as a100=4.", param_hint="--type")
    return name, int(count)


@guarantee.command()
@click.argument("project")
def rm(project: str) -> None:
    """Remove the guarantee of a project."""
    connect().guarantees.remove(project)
    done(f"The guarantee of project {project} is removed.")
