"""`evenkeel arrays`, and what a number means that is an array's and no job's."""

from __future__ import annotations

from collections.abc import Callable

import click

from evenkeel import schemas
from evenkeel.cli.config import connect
from evenkeel.cli.numbers import WholeNumber
from evenkeel.cli.output import as_json, moment, pairs, print_json, print_rows
from evenkeel.client import ApiError
from evenkeel.resources import given

HEADS = {
    "ARRAY": "number", "NAME": "name", "PROJECT": "project.key", "OWNER": "owner.email", "INDICES": "indices",
    "JOBS": "size", "AT ONCE": "max_running", "STATES": "states",
}  # fmt: skip


def job_or_array(name: str, job: Callable[[], None], array: Callable[[int], None]) -> None:
    """Does it with the job of that name or, where a number names none, with the array."""
    try:
        job()
    except ApiError as error:
        if error.status != 404 or not (name.isascii() and name.isdecimal()):
            raise
        try:
            array(int(name))
        except ApiError as second:
            raise (error if second.status == 404 else second) from None


def states_text(array: schemas.JobArray) -> str:
    """As `3 running, 12 queued`."""
    return ", ".join(f"{count} {state}" for state, count in array["states"].items())


def print_array(array: schemas.JobArrayDetail, output: str) -> None:
    if output == "json":
        print_json(array)
        return
    owner = array["owner"]
    rows: list[tuple[str, object]] = [
        ("Array", f"{array['number']}  {array['name']}"),
        ("Project", f"{array['project']['key']}, {owner['email'] if owner else 'no owner'}"),
        ("Indices", array["indices"]),
        ("Jobs", f"{array['size']}, named {array['number']}_INDEX"),
        ("At once", array["max_running"] or "as many as have room"),
        ("States", states_text(array)),
        ("Cost", f"{array['cost']['so_far']} {array['cost']['currency']}"),
        ("Submitted", moment(array["submitted_at"])),
    ]
    click.echo(pairs(rows))


@click.group()
def arrays() -> None:
    """Arrays: jobs of one file that differ in their index."""


@arrays.command("ls")
@click.option("--project", help="Only arrays with jobs of this project.")
@as_json
def ls(project: str | None, output: str) -> None:
    """List arrays, newest first.

    \b
    Example:
      evenkeel arrays ls --project vision
    """
    found = connect().arrays.list(**given(project=project))
    rows = found if output == "json" else ({**array, "states": states_text(array)} for array in found)
    print_rows(rows, HEADS, output, none="There are no arrays.")


@arrays.command("limit")
@click.argument("array", type=WholeNumber(min=1))
@click.argument("at_once", metavar="N|none")
@as_json
def limit(array: int, at_once: str, output: str) -> None:
    """Limit how many of its jobs may have GPUs at once.

    \b
    Examples:
      evenkeel arrays limit 57 4
      evenkeel arrays limit 57 none
    """
    if at_once != "none" and not (at_once.isascii() and at_once.isdecimal()):
        raise click.BadParameter(f"{at_once!r} is neither a number nor none", param_hint="N")
    print_array(connect().arrays.limit(array, None if at_once == "none" else int(at_once)), output)
