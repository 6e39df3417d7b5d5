"""`evenkeel check`, and how checks of nodes are shown."""

from __future__ import annotations

import time

import click

from evenkeel import schemas
from evenkeel.cli.clusters import of_cluster
from evenkeel.cli.config import connect
from evenkeel.cli.going_on import going_on
from evenkeel.cli.numbers import Number
from evenkeel.cli.output import age, as_json, clean, done, note, print_json, table
from evenkeel.cli.waiting import EXIT_CODES, NOT_IN_TIME
from evenkeel.client import Client

CAUSES = {
    "joined": "it joined",
    "returned": "it is back",
    "faults": "runs failed on it",
    "asked": "asked for",
    "again": "the last one failed",
}
STATES = {"checking": "being checked", "failed": "failed its check"}
_LOOK_S = 0.5


@click.command()
@click.argument("node")
@click.option("--use-anyway", is_flag=True, help="Give it work although its check failed, or has not ended.")
@click.option("--timeout", "timeout_s", type=Number(min=0), default=180, show_default=True, metavar="SECONDS")
@of_cluster
@click.pass_context
@as_json
def check(ctx: click.Context, node: str, use_anyway: bool, timeout_s: float, cluster: str | None, output: str) -> None:
    """Check a node now and show the results. For administrators.

    Jobs on it keep running. A node in use stays so unless the check fails; one that failed is used again once it
    passes. Ends with 0 where it passed, 100 where it failed, and 101 where there is no result within --timeout.

    \b
    Examples:
      evenkeel check n1
      evenkeel check n1 --use-anyway
    """
    client = connect()
    if use_anyway:
        found = client.checks.use_anyway(node, cluster=cluster)
        if output == "json":
            print_json(found)
        else:
            done(f"{node} is in use.")
        return
    with going_on(f"The check is still running: `evenkeel nodes {node}` shows its result."):
        health = _examine(client, node, cluster, timeout_s)
    if output == "json":
        print_json(health)
    elif health["open"] is not None:
        note(f"{node}: no result within {timeout_s:g} s")
    else:
        click.echo(check_text(health))
        if rows := check_rows(health):
            click.echo(rows)
    last = health["last"]
    if health["open"] is not None or last is None:
        ctx.exit(NOT_IN_TIME)
    ctx.exit(EXIT_CODES["succeeded" if last["passed"] else "failed"])


def _examine(client: Client, node: str, cluster: str | None, timeout_s: float) -> schemas.NodeHealth:
    health = client.checks.start(node, cluster=cluster)["check"]
    give_up_at = time.monotonic() + timeout_s
    while health["open"] is not None and time.monotonic() < give_up_at:
        time.sleep(_LOOK_S)
        health = client.node(node, cluster=cluster)["check"]
    return health


def check_text(health: schemas.NodeHealth) -> str:
    """passed 3m ago (it joined); 'none' where there never was one."""
    parts, last = [], health["last"]
    if last is not None and last["ended_at"] is not None:
        result = "passed" if last["passed"] else "failed"
        parts.append(f"{result} {age(last['ended_at'])} ago ({CAUSES[last['cause']]})")
    if health["open"] is not None:
        parts.append("under way" if health["open"]["begun_at"] else "awaited")
    if health["waived_at"] is not None:
        by = f" by {clean(health['waived_by'])}" if health["waived_by"] else ""
        parts.append(f"used anyway since {age(health['waived_at'])}{by}")
    return "; ".join(parts) or "none"


def check_rows(health: schemas.NodeHealth) -> str:
    """What the last one found, with what to do where it failed."""
    items = health["last"]["items"] if health["last"] else []
    rows = [[one["subject"], one["result"], one["seen"], one["fix"]] for one in items]
    return table(("CHECK", "RESULT", "FOUND", "TO DO"), rows) if rows else ""
