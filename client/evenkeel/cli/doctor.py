"""`evenkeel doctor`."""

from __future__ import annotations

import time

import click

from evenkeel import schemas
from evenkeel.cli.clusters import clusters_of
from evenkeel.cli.config import connect
from evenkeel.cli.going_on import going_on
from evenkeel.cli.numbers import Number
from evenkeel.cli.output import as_json, clean, note, print_json
from evenkeel.cli.waiting import EXIT_CODES, NOT_IN_TIME
from evenkeel.client import Client

_LOOK_S = 0.5


@click.command()
@click.option("--cluster", metavar="NAME", help="Which one; by default all.")
@click.option("--timeout", "timeout_s", type=Number(min=0), default=300, show_default=True, metavar="SECONDS")
@click.pass_context
@as_json
def doctor(ctx: click.Context, cluster: str | None, timeout_s: float, output: str) -> None:
    """Examine clusters: connection, versions, GPUs, clocks, storage, and what they offer a job of
    code, environments and data; with what to put right. For administrators.

    Ends with 0 where all is well, 100 where something is to be put right, and 101 where there is no result within
    --timeout. On the portal's machine `manage.py doctor` says the same, also while the portal is down.

    \b
    Examples:
      evenkeel doctor
      evenkeel doctor --cluster lab
    """
    client = connect()
    names = [cluster] if cluster else [one["name"] for one in clusters_of(client)]
    give_up_at = time.monotonic() + timeout_s
    begun = [client.checks.examine(name) for name in names]  # all at once
    with going_on("The examination is still running; `evenkeel doctor` starts another."):
        ended = [_wait(client, one, give_up_at) for one in begun]
    if output == "json":
        print_json(ended)
    else:
        for one in ended:
            _tell(one, timeout_s)
    if any(one["ended_at"] is None for one in ended):
        ctx.exit(NOT_IN_TIME)
    wrong = any(item["result"] == "failed" for one in ended for item in one["findings"])
    ctx.exit(EXIT_CODES["failed" if wrong else "succeeded"])


def _wait(client: Client, found: schemas.Examination, give_up_at: float) -> schemas.Examination:
    while found["ended_at"] is None and time.monotonic() < give_up_at:
        time.sleep(_LOOK_S)
        found = client.checks.examination(found["cluster"])
    return found


def _tell(found: schemas.Examination, timeout_s: float) -> None:
    click.echo(f"{clean(found['cluster'])}: executor {clean(found['executor'])}")
    if found["ended_at"] is None:
        note(f"{found['cluster']}: no result within {timeout_s:g} s")
    for item in found["findings"]:
        mark = "WRONG" if item["result"] == "failed" else "warn " if item["fix"] else "ok   "
        click.echo(f"{mark} {clean(item['subject'])}: {clean(item['seen'])}")
        if item["fix"]:
            click.echo(f"      {clean(item['fix'])}")
