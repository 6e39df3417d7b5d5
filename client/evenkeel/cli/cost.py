"""`evenkeel cost`."""

from __future__ import annotations

from typing import get_args

import click

from evenkeel.cli.config import connect
from evenkeel.cli.output import as_json, clean, pairs, print_json, print_rows
from evenkeel.cli.submit import read_job_file
from evenkeel.resources import GroupBy

DAY = click.DateTime(["%Y-%m-%d"])


@click.group()
def cost() -> None:
    """What jobs cost, what was used, and what it would cost."""


@cost.command()
@click.argument("job")
@as_json
def job(job: str, output: str) -> None:
    """What a job has cost, and is expected to cost."""
    answer = connect().money.job(job)
    if output == "json":
        print_json(answer)
        return
    rows = [
        ("So far", f"{answer['so_far']} {answer['currency']}"),
        ("Estimated", answer.get("estimated")),
        ("Between", " and ".join(filter(None, (answer.get("estimated_low"), answer.get("estimated_high"))))),
        ("GPU-hours", round(answer["gpu_hours"], 3)),
        ("Rate", answer.get("rate_per_hour")),
        ("Restarts", answer.get("lost_to_restarts")),
        ("Basis", clean(answer.get("basis") or "")),
    ]
    click.echo(pairs(rows))


@cost.command()
@click.option("--by", type=click.Choice(get_args(GroupBy)), default="project", show_default=True)
@click.option("--from", "from_day", metavar="YYYY-MM-DD", help="First day; by default of this month.")
@click.option("--to", "to_day", metavar="YYYY-MM-DD", help="Last day; by default today.")
@click.option("--project", help="This project and all below it.")
@click.option("--user", help="`me`, or somebody's email.")
@click.option("--csv", is_flag=True, help="All rows as CSV.")
@as_json
def usage(by: GroupBy, csv: bool, output: str, **filters: str | None) -> None:
    """GPU-hours and cost, by project, user, job, day, month or type."""
    money = connect().money
    if csv:
        click.echo(money.usage_csv(by, **filters), nl=False)
        return
    heads = {by.upper(): "label", "JOBS": "jobs", "GPU-HOURS": "gpu_hours", "COST": "cost"}
    print_rows(money.usage(by, **filters), heads, output, none="Nothing was used.")


@cost.command()
@click.argument("file", metavar="FILE|-")
@as_json
def estimate(file: str, output: str) -> None:
    """What a job file would cost, by accelerator type; nothing is submitted."""
    answer = connect().money.estimate(read_job_file(file))
    if output == "json":
        print_json(answer)
        return
    heads = {"TYPE": "type", "GPUS": "gpus", "STEPS/S": "steps_per_s", "SECONDS": "duration_s", "COST": "amount"}
    print_rows(answer["options"], heads | {"LOW": "low", "HIGH": "high", "BASIS": "basis"}, output, none="")
    click.echo(clean(answer["basis"]), err=True)


@cost.command()
@as_json
def rates(output: str) -> None:
    """Prices, newest first."""
    heads = {"WHAT": "resource", "TYPE": "accelerator_type", "PER HOUR": "price_per_hour"}
    heads |= {"FROM": "valid_from_at", "TO": "valid_to_at"}
    print_rows(connect().money.rates(), heads, output, none="No prices.")
