"""`evenkeel why`."""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy

import click

from evenkeel import schemas
from evenkeel.cli.arrays import job_or_array
from evenkeel.cli.config import connect
from evenkeel.cli.output import as_json, asked_rows, clean, job_name, moment, pairs, print_json, print_rows, waits_for
from evenkeel.client import Client

ARRAY_HEADS = {"REASON": "word", "JOBS": "jobs", "FIRST": "first", "WHY THE FIRST WAITS": "text"}


@click.command()
@click.argument("job")
@as_json
def why(job: str, output: str) -> None:
    """Say why a job waits or has what it has, who took its GPUs, and what would change it.

    Of an array: the reasons of its waiting jobs, each with how many there are.

    \b
    Examples:
      evenkeel why 12
      evenkeel why 57      # an array
      evenkeel why 57_3    # its job of index 3
      evenkeel why 12 --output json | jq .displaced
    """
    client = connect()
    job_or_array(job, lambda: _why(client, job, output), lambda number: _array_why(client, number, output))


#: The same by its other name.
explain = copy(why)
explain.name = "explain"


def _why(client: Client, job: str, output: str) -> None:
    found = client.explain(job)
    if output == "json":
        print_json(found)
        return
    slurm = f" (Slurm: {found['slurm']})" if found["slurm"] else ""
    rows: list[tuple[str, object]] = [
        ("Job", job_name(found["number"], found["array"])),
        ("Reason", clean(found["text"])),
        ("Token", f"{found['token']}{slurm}"),
        ("Ahead", _ahead(found)),
        ("Next", clean(found["would_change"] or "")),
        ("Checked", moment(found["checked_at"])),
        ("Late", clean(found["deadline"] or "")),
        *asked_rows(client.job(job)),
    ]
    click.echo(pairs(rows + (_lost(found["displaced"]) if found["displaced"] else [])))


def _ahead(found: schemas.Explanation) -> str:
    competing = ", ".join(f"#{job_name(other['number'], other['array'])}" for other in found["ahead"])
    if not found["apart"]:
        return competing
    others = f"{found['apart']} before it {'waits' if found['apart'] == 1 else 'wait'} for something else, or elsewhere"
    return f"{competing} ({others})" if competing else f"none ({others})"


def _array_why(client: Client, number: int, output: str) -> None:
    array = client.arrays.get(number)
    waiting = client.jobs(array=str(number), state="queued", ordering="number", limit="200")
    print_rows(_by_reason(waiting), ARRAY_HEADS, output, none=f"No job of array {array['number']} waits.")


def _by_reason(jobs: Iterable[schemas.Job]) -> list[dict[str, object]]:
    """Jobs that wait for the same, the first of them for all; most first."""
    alike: dict[str, list[schemas.Job]] = {}
    for job in jobs:
        alike.setdefault(job["reason"]["slurm"] or job["reason"]["token"], []).append(job)
    groups = sorted(alike.items(), key=lambda group: -len(group[1]))
    return [
        {
            "reason": reason,
            "word": waits_for(group[0]["reason"]),
            "jobs": len(group),
            "first": job_name(group[0]["number"], group[0]["array"]),
            "text": group[0]["reason"]["text"],
        }
        for reason, group in groups
    ]


def _lost(displaced: schemas.Displaced) -> list[tuple[str, object]]:
    takers = [f"#{job['number']} of {clean(job['project'])} ({clean(job['within'])})" for job in displaced["by"]]
    left = f"{displaced['gpus_now']} of {displaced['gpus_before']} GPUs left, since {moment(displaced['at'])}"
    basis = f", {clean(displaced['back_basis'])}" if displaced["back_basis"] else ""
    return [
        (displaced["kind"].capitalize(), left),
        ("Because", clean(displaced["text"])),
        ("Level", clean(displaced["level"])),
        ("Taken by", ", ".join(takers)),
        ("Back", f"{moment(displaced['back_at'])}{basis}" if displaced["back_at"] else "not foreseen"),
    ]
