"""`evenkeel fairness`: how evenly jobs are slowed, now and before, and who is worst off."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import click

from evenkeel import schemas
from evenkeel.cli.clusters import of_cluster
from evenkeel.cli.config import connect
from evenkeel.cli.numbers import WholeNumber
from evenkeel.cli.output import as_json, clean, job_name, note, print_json, span_text, table


@click.command()
@click.option("--project", help="This project and all below it.")
@click.option("--users", is_flag=True, help="A row for each user in each project.")
@click.option("--days", type=WholeNumber(1, 400), default=1, show_default=True, help="How far back BEFORE goes.")
@of_cluster
@as_json
def fairness(project: str | None, users: bool, days: int, cluster: str | None, output: str) -> None:
    """Relative throughput (1: as fast as alone) and slowdown of your projects, and the jobs that are worst off.

    \b
    Examples:
      evenkeel fairness
      evenkeel fairness --project vision --users --days 7
      evenkeel fairness --output json | jq '.now.worst_off[0].number'
    """
    client = connect()
    now = client.fairness.now(project=project, cluster=cluster)
    from_at = (datetime.now(UTC) - timedelta(days=days)).isoformat(timespec="seconds").replace("+00:00", "Z")
    by = "user" if users else "project"
    before = list(client.fairness.history(by=by, project=project, from_at=from_at, points=2, cluster=cluster))
    if output == "json":
        print_json({"now": now, "history": before})
        return
    click.echo(_verdict(now))
    _standings(now["users" if users else "projects"], before, users=users)
    _jobs(now["worst_off"])
    if now["more_users" if users else "more_projects"]:
        note("There are more; --project shows fewer.")


def _verdict(now: schemas.Fairness) -> str:
    cluster, policy = now["cluster"], now["policy"]
    said = f"{cluster['running']} with GPUs, {cluster['waiting']} waiting"
    if cluster["variance"] is None:
        return f"{said}; no relative throughput is known."
    variance = f"{said}; variance {cluster['variance']:.4f}"
    if policy["v_bound"] is None:
        return f"{variance}; {clean(policy['name'])} sets no bound."
    return f"{variance}, {'within' if now['within_bound'] else 'NOT within'} its bound of {policy['v_bound']:g}."


def _standings(now: list[schemas.ProjectStanding], before: list[schemas.FairnessSeries], *, users: bool) -> None:
    """Those with jobs now, then those that had some before."""
    was = {_whose(one): one["figures"] for one in before}
    rows = [[*_whose(one), *_now(one), *_before(was.pop(_whose(one), None))] for one in now]
    rows += [[*whose, 0, 0, "-", "-", "-", *_before(figures)] for whose, figures in was.items()]
    if not rows:
        note("None of your projects has or had jobs.")
        return
    heads = ["PROJECT", "USER", "RUNNING", "WAITING", "RELATIVE", "LOWEST", "SLOWDOWN", "BEFORE", "LOWEST"]
    if not users:
        heads, rows = [heads[0], *heads[2:]], [[row[0], *row[2:]] for row in rows]
    click.echo(table(heads, rows, right=frozenset(range(2 if users else 1, len(heads)))))


def _whose(one: schemas.ProjectStanding | schemas.FairnessSeries) -> tuple[str, str]:
    return one["project"]["key"] if one["project"] else "", one["user"]["email"] if one["user"] else ""


def _now(one: schemas.ProjectStanding) -> list[object]:
    relative, slowdown = one["relative_throughput"], one["slowdown"]
    figures = [relative and relative["median"], relative and relative["lowest"], slowdown and slowdown["mean"]]
    return [one["running"], one["waiting"], *(_figure(value) for value in figures)]


def _before(figures: schemas.FairnessFigures | None) -> list[object]:
    relative = figures and figures["relative_throughput"]
    return [_figure(relative and relative["mean"]), _figure(relative and relative["lowest"])]


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _jobs(jobs: list[schemas.SlowedJob]) -> None:
    if not jobs:
        return
    heads = ("JOB", "NAME", "PROJECT", "RELATIVE", "SLOWDOWN", "GPUS", "WAITED", "WHY")
    rows = [
        [
            job_name(job["number"], job["array"]), job["name"], job["project"]["key"],
            _figure(job["relative_throughput"]), _figure(job["slowdown"]), job["gpus"], span_text(job["waited_s"]),
            job["reason"]["text"],
        ]
        for job in jobs
    ]  # fmt: skip
    click.echo(f"\nWorst off:\n{table(heads, rows, right=frozenset({0, 3, 4, 5, 6}))}")
