"""`evenkeel explain`."""

from __future__ import annotations

from collections.abc import Iterable

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
def explain(job: str, output: str) -> None:
    """Explain why a job waits or has the GPUs that it has, which jobs took its GPUs, and what would change it.

    Of an array: the reasons of its waiting jobs, each with how many there are.

    \b
    Examples:
      evenkeel explain 12
      evenkeel explain 57      # an array
      evenkeel explain 57_3    # its job of index 3
      evenkeel explain 12 --output json | jq .preemption
    """
    client = connect()
    job_or_array(job, lambda: _explain(client, job, output), lambda number: _explain_array(client, number, output))


def _explain(client: Client, job: str, output: str) -> None:
    found = client.explain(job)
    if output == "json":
        print_json(found)
        return
    slurm = f" (Slurm: {found['slurm']})" if found["slurm"] else ""
    rows: list[tuple[str, object]] = [
        ("Job", job_name(found["number"], found["array"])),
        ("Reason", clean(found["text"])),
        ("Code", f"{found['code']}{slurm}"),
        ("Ahead", _ahead(found)),
        ("Next", clean(found["would_change"] or "")),
        ("Checked", moment(found["checked_at"])),
        ("Late", clean(found["deadline"] or "")),
        *asked_rows(client.job(job)),
    ]
    click.echo(pairs(rows + (_lost(found["preemption"]) if found["preemption"] else [])))


def _ahead(found: schemas.Explanation) -> str:
    competing = ", ".join(f"#{job_name(other['number'], other['array'])}" for other in found["ahead"])
    if not found["apart"]:
        return competing
    others = f"{found['apart']} before it {'waits' if found['apart'] == 1 else 'wait'} for something else, or elsewhere"
    return f"{competing} ({others})" if competing else f"none ({others})"


def _explain_array(client: Client, number: int, output: str) -> None:
    array = client.arrays.get(number)
    waiting = client.jobs(array=str(number), state="queued", ordering="number", limit="200")
    print_rows(_by_reason(waiting), ARRAY_HEADS, output, none=f"No job of array {array['number']} waits.")


def _by_reason(jobs: Iterable[schemas.Job]) -> list[dict[str, object]]:
    """Jobs that wait for the same, the first of them for all; most first."""
    alike: dict[str, list[schemas.Job]] = {}
    for job in jobs:
        alike.setdefault(job["reason"]["slurm"] or job["reason"]["code"], []).append(job)
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


def _lost(preemption: schemas.Displaced) -> list[tuple[str, object]]:
    takers = [f"#{job['number']} of {clean(job['project'])} ({clean(job['within'])})" for job in preemption["by"]]
    left = f"{preemption['gpus_now']} of {preemption['gpus_before']} GPUs left, since {moment(preemption['at'])}"
    basis = f", {clean(preemption['back_basis'])}" if preemption["back_basis"] else ""
    return [
        (preemption["kind"].capitalize(), left),
        ("Because", clean(preemption["text"])),
        ("Level", clean(preemption["level"])),
        ("Taken by", ", ".join(takers)),
        ("Back", f"{moment(preemption['back_at'])}{basis}" if preemption["back_at"] else "not foreseen"),
    ]
