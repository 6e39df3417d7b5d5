"""`evenkeel queue`, `nodes`, `throughputs` and `open`."""

from __future__ import annotations

import math
from itertools import islice

import click

from evenkeel import schemas
from evenkeel.cli.config import connect, current_login
from evenkeel.cli.jobs import is_terminal
from evenkeel.cli.output import (
    age,
    as_json,
    clean,
    gpus_text,
    job_name,
    moment,
    note,
    print_json,
    print_rows,
    table,
    waits_for,
)
from evenkeel.cli.starts import start_text

#: Of a longer queue the first in the order of the API are read.
MOST_QUEUED = 5_000


@click.command()
@click.option("--project", help="Only jobs of this project.")
@click.option("--owner", help="Only jobs of this person: `me`, or an email.")
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="The first so many.")
@as_json
def queue(limit: int, output: str, **filters: str | None) -> None:
    """List the jobs that wait, first come first; PLACE is among all that wait, of other projects too.

    \b
    Examples:
      evenkeel queue
      evenkeel queue --owner me
      evenkeel queue --output json | jq '.[0].expected_start'
    """
    wanted = {key: value for key, value in filters.items() if value is not None}
    found = connect().jobs(state="queued", ordering="number", limit="200", **wanted)
    jobs = sorted(islice(found, MOST_QUEUED), key=lambda job: (job["queue_position"] or math.inf, job["number"]))
    if output == "json":
        print_json(jobs[:limit])
    elif not jobs:
        click.echo("Nothing waits.")
    else:
        heads = ("PLACE", "JOB", "NAME", "PROJECT", "GPUS", "WAITS FOR", "WAITED", "STARTS")
        click.echo(table(heads, [_waiting(job) for job in jobs[:limit]], right=frozenset({0, 1, 6})))
        if len(jobs) > limit:
            note(f"and {len(jobs) - limit:,} more; --limit shows them")


def _waiting(job: schemas.Job) -> list[object]:
    return [
        job["queue_position"] or "-",
        job_name(job["number"], job["array"]),
        job["name"],
        job["project"]["key"],
        gpus_text(job).removeprefix("0 of "),
        "held" if job["hold"] else waits_for(job["reason"]),
        age(job["submitted_at"]),
        start_text(job["expected_start"]),
    ]


@click.command()
@as_json
def nodes(output: str) -> None:
    """List the nodes: their GPUs, how many are free, and which jobs hold the others.

    \b
    Examples:
      evenkeel nodes
      evenkeel nodes --output json | jq '.[] | select(.drained) | .name'
    """
    found = connect().nodes()
    if output == "json":
        print_json(found)
    elif not found:
        click.echo("No nodes.")
    else:
        heads = ("NODE", "TYPE", "STATE", "GPUS", "FREE", "JOBS", "CPUS", "MEMORY GIB")
        click.echo(table(heads, [_node(node) for node in found], right=frozenset({3, 4, 6, 7})))


def _node(node: schemas.Node) -> list[object]:
    free = sum(gpu["state"] == "free" for gpu in node["accelerators"])
    holders = sorted({part["job"]["number"] for gpu in node["accelerators"] for part in gpu["parts"]})
    return [
        node["name"],
        f"{node['type']}{' (emulated)' if node['emulated'] else ''}",
        _state(node),
        node["gpus"],
        free,
        ", ".join(f"#{number}" for number in holders) or "-",
        node["cpus"],
        round(node["memory_mib"] / 1024) or "-",
    ]


def _state(node: schemas.Node) -> str:
    drain = node["drain"]
    if node["lost"] or drain is None:
        return "lost" if node["lost"] else "up"
    until = f" until {moment(drain['deadline_at'])}" if drain["state"] == "draining" and drain["deadline_at"] else ""
    reason = f" ({drain['reason']})" if drain["reason"] else ""
    return f"{drain['state']}{until}{reason}"


@click.command()
@click.argument("model", required=False)
@click.option("--gpus", type=click.IntRange(min=1), help="On so many GPUs only.")
@as_json
def throughputs(model: str | None, gpus: int | None, output: str) -> None:
    """Show how fast programs train on each accelerator type and count, and what that rests on.

    \b
    Examples:
      evenkeel throughputs resnet50
      evenkeel throughputs --gpus 4 --output json
    """
    rows = [
        {"model": one["name"], "type": kind, **point}
        for one in connect().model_types()
        if model in (None, one["name"])
        for kind, curve in sorted(one["curves"].items())
        for point in curve["points"]
        if gpus in (None, point["count"])
    ]
    heads = {
        "MODEL": "model", "TYPE": "type", "GPUS": "count", "STEPS/S": "steps_per_s", "FROM": "source",
        "AGE S": "age_s", "SAMPLES": "samples", "ERROR": "relative_error",
    }  # fmt: skip
    print_rows(rows, heads, output, none="No throughput is known.")


@click.command("open")
@click.argument("job", required=False)
def open_(job: str | None) -> None:
    """Open the portal in the browser, or a job's page; without a terminal its address is printed.

    \b
    Examples:
      evenkeel open
      evenkeel open 12
    """
    address = current_login().url.rstrip("/")
    if job is not None:
        address += f"/jobs/{connect().job(job)['number']}"
    if not is_terminal() or click.launch(address) != 0:
        click.echo(clean(address))
