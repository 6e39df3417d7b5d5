"""`evenkeel why`."""

from __future__ import annotations

import click

from evenkeel import schemas
from evenkeel.cli.config import connect
from evenkeel.cli.output import as_json, clean, moment, pairs, print_json


@click.command()
@click.argument("job")
@as_json
def why(job: str, output: str) -> None:
    """Say why a job waits or has what it has, who took its GPUs, and what would change it.

    \b
    Examples:
      evenkeel why 12
      evenkeel why 12 --output json | jq .displaced
    """
    found = connect().explain(job)
    if output == "json":
        print_json(found)
        return
    slurm = f" (Slurm: {found['slurm']})" if found["slurm"] else ""
    rows: list[tuple[str, object]] = [
        ("Reason", clean(found["text"])),
        ("Token", f"{found['token']}{slurm}"),
        ("Ahead", _ahead(found)),
        ("Next", clean(found["would_change"] or "")),
        ("Checked", moment(found["checked_at"])),
    ]
    click.echo(pairs(rows + (_lost(found["displaced"]) if found["displaced"] else [])))


def _ahead(found: schemas.Explanation) -> str:
    rivals = ", ".join(f"#{other['number']}" for other in found["ahead"])
    if not found["apart"]:
        return rivals
    others = f"{found['apart']} before it {'waits' if found['apart'] == 1 else 'wait'} for something else, or elsewhere"
    return f"{rivals} ({others})" if rivals else f"none ({others})"


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
