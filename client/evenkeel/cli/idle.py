"""`evenkeel idle` and `evenkeel extend`."""

from __future__ import annotations

import click

from evenkeel import schemas
from evenkeel.cli.clusters import of_cluster
from evenkeel.cli.config import connect
from evenkeel.cli.numbers import Number, WholeNumber
from evenkeel.cli.output import as_json, clean, done, options_named, pairs, print_json
from evenkeel.client import Json
from evenkeel.resources import given

MINUTES = Number(min=0, min_open=True, max=43_200)
#: Where people give in minutes and percent what the API has in seconds and parts.
OPTIONS = {
    "warn_after_s": "--warn-after",
    "release_after_s": "--release-after",
    "extension_s": "--extension",
    "utilisation_below": "--below",
    "extensions_max": "--extensions",
}


@click.command()
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...")
@as_json
def extend(jobs: tuple[str, ...], output: str) -> None:
    """Let jobs with an idle warning keep their GPUs for longer, as the cluster's rule allows."""
    extended = [connect().operations.extend(job) for job in jobs]
    if output == "json":
        print_json(extended[0] if len(extended) == 1 else extended)
        return
    for job in extended:
        click.echo(f"Job {job['number']}: {clean(job['idle']['text']) if job['idle'] else 'is not idle any more'}")


@click.group()
def idle() -> None:
    """When a job with GPUs counts as idle, and what happens then."""


@idle.command()
@of_cluster
@as_json
def show(cluster: str | None, output: str) -> None:
    """The rule of the cluster."""
    _print(connect().operations.idle_rule(cluster=cluster), output)


@idle.command("set")
@click.option("--warn-after", metavar="MIN", type=MINUTES, help="Minutes without a step or below the threshold.")
@click.option("--release-after", metavar="MIN", type=MINUTES, help="Suspend with a checkpoint after this many minutes.")
@click.option("--never-release", is_flag=True, help="Warn only; never suspend.")
@click.option("--below", metavar="PERCENT", type=Number(0, 100), help="Utilisation that counts as idle.")
@click.option("--extension", metavar="MIN", type=MINUTES, help="What `evenkeel extend` gives.")
@click.option("--extensions", metavar="N", type=WholeNumber(0, 100), help="How often it may be asked for.")
@click.option("--on/--off", "enabled", default=None, help="Whether the rule is applied.")
@of_cluster
@as_json
def set_(
    warn_after: float | None,
    release_after: float | None,
    never_release: bool,
    below: float | None,
    extension: float | None,
    extensions: int | None,
    enabled: bool | None,
    cluster: str | None,
    output: str,
) -> None:
    """Change the rule, for administrators; what is left out stays as it is.

    \b
    Examples:
      evenkeel idle set --warn-after 30 --release-after 120
      evenkeel idle set --below 10 --never-release
    """
    if never_release and release_after is not None:
        raise click.UsageError("give --release-after or --never-release, not both")
    operations = connect().operations
    wish: Json = dict(operations.idle_rule(cluster=cluster)) | given(
        warn_after_s=_seconds(warn_after),
        release_after_s=_seconds(release_after),
        utilisation_below=None if below is None else below / 100,
        extension_s=_seconds(extension),
        extensions_max=extensions,
        enabled=enabled,
    )
    if never_release:
        wish["release_after_s"] = None
    warned_s, released_s = wish["warn_after_s"], wish["release_after_s"]
    if released_s is not None and released_s < warned_s:
        raise click.UsageError(
            f"--release-after {released_s / 60:g} must be at least --warn-after {warned_s / 60:g}, both in minutes: "
            "a job is warned before it is suspended"
        )
    with options_named(OPTIONS):
        rule = operations.set_idle_rule(wish, cluster=cluster)
    _print(rule, output)
    if output != "json":
        done("The rule also applies to jobs that are idle already.")


def _seconds(minutes: float | None) -> float | None:
    return None if minutes is None else minutes * 60


def _print(rule: schemas.IdleRule, output: str) -> None:
    if output == "json":
        print_json(rule)
        return
    release_s = rule["release_after_s"]
    rows = [
        ("In force", "yes" if rule["enabled"] else "no"),
        ("Idle below", f"{rule['utilisation_below']:.0%} utilisation, or without a step"),
        ("Warned after", f"{rule['warn_after_s'] / 60:g} min"),
        ("Suspended after", "never" if release_s is None else f"{release_s / 60:g} min"),
        ("Extension", f"{rule['extension_s'] / 60:g} min, at most {rule['extensions_max']} times"),
    ]
    click.echo(pairs(rows))
