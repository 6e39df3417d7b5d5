"""What a job uses of its GPUs."""

from __future__ import annotations

import csv
import sys

import click

from evenkeel import schemas
from evenkeel.cli.config import connect
from evenkeel.cli.numbers import WholeNumber
from evenkeel.cli.output import as_json, clean, print_json, span_text, table

NAMES = {"gpu": "GPU", "gpu_memory": "MEMORY", "gpu_cores": "CORES", "pcie": "PCIE"}


@click.command()
@click.argument("job")
@click.option(
    "--points", type=WholeNumber(2, 2_000), default=500, show_default=True, help="Points of a series at most."
)
@click.option("--csv", "as_csv", is_flag=True, help="Every point as CSV: seconds,gpu,gpu_memory,gpu_cores,pcie.")
@as_json
def resources(job: str, points: int, as_csv: bool, output: str) -> None:
    """Show what a job uses of its GPUs, in percent of one, and what its program used on each type of device.

    \b
    Examples:
      evenkeel resources 12
      evenkeel resources 12 --csv > use.csv
    """
    found = connect().resources(job, points)
    if output == "json":
        print_json(found)
    elif as_csv:
        _write_csv(found)
    else:
        rows = [_last(found), *(_profile(profile) for profile in found["profiles"])]
        shown = [row for row in rows if row]
        heads = ("OF", *NAMES.values(), "OVER")
        click.echo(table(heads, shown, right=frozenset({1, 2, 3, 4})) if shown else "Nothing was sampled.")
        if found["emulated"] and shown:
            click.echo("Emulated: by processors; such devices have neither cores nor PCIe.")


def _write_csv(found: schemas.Resources) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(("seconds", *NAMES))
    series = found["series"]
    rows = zip(series["gpu"], series["gpu_memory"], series["gpu_cores"], series["pcie"], strict=True)
    for columns in rows:
        if any(value is not None for _, value in columns):
            writer.writerow((columns[0][0], *("" if value is None else value for _, value in columns)))


def _last(found: schemas.Resources) -> tuple[str, ...]:
    parts = {name: [value for _, value in found["series"][name] if value is not None][-1:] for name in NAMES}  # type: ignore[literal-required]
    if not any(parts.values()):
        return ()
    return ("this job, last", *(_percent(values[0] if values else None) for values in parts.values()), "")


def _profile(profile: schemas.ResourceProfile) -> tuple[str, ...]:
    share = f"{profile['share_percent']} % of " if profile["share_percent"] < 100 else ""
    over = f"{profile['launches']} launches, {span_text(profile['seconds'])}"
    means = (_percent(profile["mean"][name]) for name in NAMES)  # type: ignore[literal-required]
    return (f"{share}{profile['gpus']} x {clean(profile['type'])}", *means, over)


def _percent(part: float | None) -> str:
    return "-" if part is None else f"{100 * part:.0f} %"
