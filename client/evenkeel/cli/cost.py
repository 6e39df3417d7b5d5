"""`evenkeel cost`."""

from __future__ import annotations

from typing import get_args

import click

from evenkeel import schemas
from evenkeel.cli.clusters import are_several
from evenkeel.cli.config import connect
from evenkeel.cli.output import as_json, cell_text, clean, note, pairs, print_json, print_rows, print_value
from evenkeel.cli.submit import read_job_file
from evenkeel.resources import GroupBy, PricedResource, given

START = click.option(
    "--from", "valid_from_at", metavar="TIME", help="As 2026-12-01T00:00:00Z; by default now, never in the past."
)


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
        ("GPU-hours", cell_text(answer["gpu_hours"])),
        ("Used", _used(answer)),
        ("Price per hour", answer.get("price_per_hour")),
        ("Restarts", answer.get("lost_to_restarts")),
        ("Basis", clean(answer.get("basis") or "")),
    ]
    click.echo(pairs(rows))


def _used(answer: schemas.Cost) -> str:
    """Empty if no utilisation was reported."""
    used, measured = answer["used_gpu_hours"], answer["measured_gpu_hours"]
    if used is None or not measured:
        return ""
    mark = ", emulated" if answer["emulated"] else ""
    return f"{cell_text(used)} of {cell_text(measured)} GPU-hours measured ({used / measured:.0%}{mark})"


@cost.command()
@click.option("--by", type=click.Choice(get_args(GroupBy)), default="project", show_default=True)
@click.option("--from", "from_day", metavar="YYYY-MM-DD", help="First day; by default of this month.")
@click.option("--to", "to_day", metavar="YYYY-MM-DD", help="Last day; by default today.")
@click.option("--project", help="This project and all below it.")
@click.option("--user", help="`me`, or the email of a user.")
@click.option("--csv", is_flag=True, help="All rows as CSV.")
@as_json
def usage(by: GroupBy, csv: bool, output: str, **filters: str | None) -> None:
    """GPU-hours and cost, by project, user, job, day, month or type."""
    money = connect().money
    if csv:
        click.echo(money.usage_csv(by, **filters), nl=False)
        return
    heads = {by.upper(): "label", "JOBS": "jobs", "GPU-HOURS": "gpu_hours", "USED": "used_gpu_hours", "COST": "cost"}
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
    for refusal in answer["refused_by"]:
        note(f"It would be refused now: {clean(refusal)}")
    for limit in answer["waits_for"]:
        note(f"It would wait: {clean(limit)}")
    note(clean(answer["basis"]))


@cost.command()
@click.option("--cluster", metavar="NAME", help="Only those of this cluster; by default all.")
@as_json
def prices(cluster: str | None, output: str) -> None:
    """Prices, newest first; the price of a cluster counts there before the one for all clusters."""
    client = connect()
    heads = {"WHAT": "resource", "TYPE": "accelerator_type", "PER HOUR": "price_per_hour"}
    heads |= {"FROM": "valid_from_at", "TO": "valid_to_at"}
    found = list(client.money.prices(cluster=cluster))
    if output != "json" and found and are_several(client):
        heads = {"CLUSTER": "cluster"} | heads
    print_rows(found, heads, output, none="No prices.")


@cost.command("set-price")
@click.argument("price")
@click.option("--type", "accelerator_type", help="Accelerator type; required for GPUs.")
@click.option("--resource", type=click.Choice(get_args(PricedResource)), default="gpu", show_default=True)
@click.option("--cluster", metavar="NAME", help="Only on this cluster, instead of the price for all clusters.")
@START
@as_json
def set_price(price: str, resource: PricedResource, output: str, **more: str | None) -> None:
    """Set the price of an hour of a GPU, a CPU or a GiB of memory; for administrators.

    \b
    Examples:
      evenkeel cost set-price 0.60 --type titan_xp
      evenkeel cost set-price 0.02 --resource cpu --from 2027-01-01T00:00:00Z
      evenkeel cost set-price 0.45 --type titan_xp --cluster lab
    """
    wish = {"price_per_hour": price, "resource": resource} | given(**more)
    print_value(connect().money.set_price(wish), output)


@cost.command()
@click.option("--project", help="Only of this project.")
@as_json
def discounts(project: str | None, output: str) -> None:
    """Discounts of your projects and of those above them, newest first."""
    heads = {"PROJECT": "project", "PERCENT": "percent", "FROM": "valid_from_at", "TO": "valid_to_at"}
    print_rows(connect().money.discounts(project=project), heads, output, none="No discounts.")


@cost.command("set-discount")
@click.argument("project")
@click.argument("percent")
@START
@as_json
def set_discount(project: str, percent: str, output: str, **more: str | None) -> None:
    """Give a project, and all below it without one of their own, a discount; 0 ends it. For administrators."""
    print_value(connect().money.set_discount({"project": project, "percent": percent} | given(**more)), output)
