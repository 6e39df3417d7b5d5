"""`evenkeel drain` and `resume`."""

from __future__ import annotations

import re
from typing import Any

import click

from evenkeel import schemas
from evenkeel.cli.checks import STATES
from evenkeel.cli.clusters import of_cluster
from evenkeel.cli.config import connect
from evenkeel.cli.output import as_json, done, moment, print_json, table

_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_OUTCOMES = {"ends": "ends there", "moves": "moves", "lost": "will be lost"}


class Span(click.ParamType[float]):
    """90m, 2h, 1.5d; without a unit seconds."""

    name = "span"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([smhd]?)", str(value).strip())
        if found is None:
            self.fail(f"{value!r} is not a duration; write 90m, 2h or 1d", param, ctx)
        return float(found[1]) * _SECONDS[found[2] or "s"]


@click.command()
@click.argument("node")
@click.option("--within", "within_s", type=Span(), metavar="SPAN", help="Empty the node within 90m, 2h or 1d.")
@click.option("--until", "deadline_at", metavar="TIME", help="Empty the node by this time (ISO 8601 with a zone).")
@click.option("--reason", default="", help="Reason, shown to all users.")
@click.option("--preview", is_flag=True, help="Show what happens to each job on the node; drain nothing.")
@of_cluster
@as_json
def drain(
    node: str,
    within_s: float | None,
    deadline_at: str | None,
    reason: str,
    preview: bool,
    cluster: str | None,
    output: str,
) -> None:
    """Take a node out of use: nothing new starts there. For administrators.

    Without a deadline its jobs move by checkpoint when there is room elsewhere. With one, who is expected to end
    before it stays, the others leave in time, and what cannot be restarted is stopped when it comes.

    \b
    Examples:
      evenkeel drain n1 --within 2h --reason "new fans" --preview
      evenkeel drain n1 --within 2h --reason "new fans"
    """
    given = {"within_s": within_s, "deadline_at": deadline_at}
    wish = {name: value for name, value in given.items() if value is not None}
    if preview:
        foreseen = connect().drains.preview(node, wish, cluster=cluster)
        _show(foreseen, foreseen["jobs"], output)
        return
    found = connect().drains.start(node, {**wish, "reason": reason}, cluster=cluster)
    drained = found["drain"]
    if drained is None or output == "json":
        print_json(found)
        return
    until = f" until {moment(drained['deadline_at'])}" if drained["deadline_at"] else ""
    done(f"{node} is {drained['state']}{until if drained['jobs'] else ''}.")
    if drained["jobs"]:
        _show(drained, drained["jobs"], output)


@click.command()
@click.argument("node")
@of_cluster
@as_json
def resume(node: str, cluster: str | None, output: str) -> None:
    """Use a drained node again, or cancel a drain before its deadline. For administrators."""
    found = connect().drains.resume(node, cluster=cluster)
    if output == "json":
        print_json(found)
    elif found["lost"]:
        done(f"{node} is resumed, but lost: no job starts there until it answers again.")
    elif state := found["check"]["state"]:
        done(f"{node} is resumed, but {STATES[state]}: see `evenkeel check {node}`.")
    else:
        done(f"{node} is in use.")


def _show(answer: object, jobs: list[schemas.DrainedJob], output: str) -> None:
    if output == "json":
        print_json(answer)
    elif not jobs:
        click.echo("No jobs on the node.")
    else:
        rows = [
            [
                one["job"]["number"],
                one["job"]["name"] or one["job"]["project"],
                one["gpus"],
                moment(one["expected_end_at"]),
                _OUTCOMES.get(one["outcome"] or "", "-"),
                one["text"] or "",
            ]
            for one in jobs
        ]
        click.echo(table(("JOB", "NAME", "GPUS", "EXPECTED END", "OUTCOME", "WHY"), rows, right=frozenset({0, 2})))
