"""`evenkeel preview`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from evenkeel import schemas
from evenkeel.cli.config import connect
from evenkeel.cli.output import as_json, clean, moment, note, options_named, pairs, print_json, span_text, table
from evenkeel.cli.starts import start_text
from evenkeel.cli.submit import COMMAND_KEY, AfterDashes, job_file_of, job_options, typed, upload
from evenkeel.cli.waiting import FAILED_CALL
from evenkeel.client import Client

VERDICTS = {"now": ("It would start now", "green"), "later": ("It would wait", "yellow"), "never": ("Never", "red")}
_POLL_S = 0.4
_LONGEST_S = 15.0


@click.command(cls=AfterDashes, options_metavar="[OPTIONS] [FILE|-] [-- COMMAND...]")
@job_options
@click.option("--quick", is_flag=True, help="Do not wait for the expected start, which takes some seconds.")
@as_json
@click.pass_context
def preview(ctx: click.Context, /, quick: bool, code: Path | None, output: str, **parts: Any) -> int:
    """Say whether a job would start now, later or never, why, and what it would do to others. Submits nothing.

    With --code the directory is uploaded, as `submit` would upload it: the same code is kept once.
    Ends with 0, or with 1 where the job would never start.

    \b
    Examples:
      evenkeel preview job.yaml
      evenkeel preview --model resnet50 --steps 2000 --gpus 1-6
      evenkeel preview job.yaml --gpus 2 --output json | jq .verdict
    """
    job = job_file_of(command=ctx.meta.get(COMMAND_KEY), **parts)
    client = connect()
    if code is not None:
        upload(client, job, code)
    with options_named(typed(parts)):
        found = client.preview(job)
    for text in found.get("warnings", ()):
        note(f"Note: {clean(text)}")
    forecast = None if quick or found["forecast"] is None else _await(client, found["forecast"])
    status = FAILED_CALL if found["verdict"] == "never" else 0
    if output == "json":
        print_json({**found, "forecast": forecast})
        return status
    click.echo(pairs([*_verdict_rows(found), *_forecast_rows(found, forecast, quick=quick)]))
    if found["effects"]:
        click.echo(f"\n{_effects(found)}")
    if forecast and forecast["delayed"]:
        click.echo(f"\n{_delayed(forecast)}")
    return status


def _await(client: Client, preview: str) -> schemas.Forecast | None:
    until_s = time.monotonic() + _LONGEST_S
    while time.monotonic() < until_s:
        answer = client.preview_forecast(preview)
        if answer["forecast"] is not None:
            return answer["forecast"]
        time.sleep(_POLL_S)
    return None


def _verdict_rows(found: schemas.Preview) -> list[tuple[str, object]]:
    words, colour = VERDICTS[found["verdict"]]
    given = found["allocation"]
    if given is not None:
        nodes = ", ".join(sorted({gpu["node"] for gpu in given["gpus"]}))
        others = ", once other jobs have left them" if given["from_others"] else ""
        words = f"{words}, on {_gang(given)} ({nodes}){others}"
    if found["jobs"] > 1:
        words = f"{words}; {found['starting']} of {found['jobs']} jobs start"
    return [
        ("Cluster", clean(found["cluster"]["choice"] or "").removeprefix("Cluster ")),
        ("Verdict", click.style(clean(words), fg=colour)),
        ("Why", clean(found["reason"]["text"])),
        ("Next", clean(found["would_change"] or "")),
        ("Before", "its code and environment are prepared first; then it queues" if found["prepares"] else ""),
        ("Queue", f"number {found['position']}" if found["position"] else ""),
        ("Variance", _variance(found["variance"])),
        ("As of", moment(found["as_of"])),
    ]


def _variance(change: schemas.VarianceChange) -> str:
    """Of relative throughputs, where the job changes it."""
    before, after, bound = change["before"], change["after"], change["bound"]
    if after is None or before == after:
        return ""
    least = "" if bound is None else f", bound {bound:.3f}"
    return f"{0.0 if before is None else before:.3f} → {after:.3f}{least}"


def _forecast_rows(
    found: schemas.Preview, forecast: schemas.Forecast | None, *, quick: bool
) -> list[tuple[str, object]]:
    options = found["estimate"]["options"]
    if forecast is None:
        if found["forecast"] is not None and not quick:
            note("The expected start is still being estimated; ask again in a moment.")
        spans = sorted(option["duration_s"] for option in options)
        low, high = found["estimate"]["low"], found["estimate"]["high"]
        return [
            ("Runs", f"{span_text(spans[0])} to {span_text(spans[-1])}" if spans else ""),
            ("Cost", f"{low} to {high} {found['estimate']['currency']}" if low else ""),
        ]
    end, cost, gang = forecast["end"], forecast["cost"], forecast["gang"]
    on = f" on {clean(_gang(gang))}" if gang else ""
    return [
        ("Start", "" if found["verdict"] == "now" else start_text(forecast["start"], long=True)),
        ("Runs", f"{span_text(end['duration_s'])}{on}" if end else ""),
        ("End", f"{moment(end['low_at'])} to {moment(end['high_at'])}, likely {moment(end['at'])}" if end else ""),
        ("Cost", f"{cost['low']} to {cost['high']} {cost['currency']}, likely {cost['amount']}" if cost else ""),
        ("Delays", f"{forecast['others_delayed']} that wait" if forecast["others_delayed"] else ""),
    ]


def _effects(found: schemas.Preview) -> str:
    rows = [
        (
            _job(effect["job"]),
            _gang(effect["before"]),
            _gang(effect["after"]) if effect["running"] or effect["after"] else "waits",
            _number(effect["slowdown_before"]),
            _number(effect["slowdown_after"]),
            _later(effect["later_s"]),
        )
        for effect in found["effects"]
    ]
    heads = ("OTHERS' GPUS", "WITHOUT IT", "WITH IT", "SLOWDOWN", "WITH IT", "ENDS LATER")
    more = found["affected"] - len(rows)
    return table(heads, rows) + (f"\nand {more} more" if more > 0 else "")


def _delayed(forecast: schemas.Forecast) -> str:
    rows = [
        (_job(one["job"]), moment(one["start_before_at"]), span_text(one["later_s"])) for one in forecast["delayed"]
    ]
    return table(("WOULD START LATER", "WITHOUT IT", "LATER BY"), rows)


def _job(job: schemas.OthersJob) -> str:
    return f"#{job['number']} {job['name'] or 'of ' + job['project']}"


def _gang(gang: schemas.Gang | None) -> str:
    if gang is None:
        return "none"
    part = "" if gang["share_percent"] == 100 else f"{gang['share_percent']}% of "
    return f"{part}{gang['count']} × {gang['type']}"


def _later(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return span_text(seconds) if seconds >= 0 else f"{span_text(-seconds)} sooner"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
