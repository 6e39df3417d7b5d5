"""Tables and lines for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Literal, TypeVar

import click

from evenkeel import schemas
from evenkeel.cli.widths import clean as clean
from evenkeel.cli.widths import display_width, padded
from evenkeel.cli.widths import fitted as fitted
from evenkeel.client import ApiError, ClientError
from evenkeel.program_output import ShownText

Row = TypeVar("Row")

COLOURS = {
    "queued": "yellow",
    "starting": "cyan",
    "running": "blue",
    "rescaling": "magenta",
    "succeeded": "green",
    "failed": "red",
    "cancelled": "bright_black",
}

as_json = click.option(
    "--output", type=click.Choice(["table", "json"]), default="table", show_default=True, help="For people or programs."
)


def print_json(value: object) -> None:
    click.echo(json.dumps(value, indent=2))


def print_value(value: Mapping[str, object], output: str) -> None:
    """One thing: as it is, or its names and values under each other."""
    if output == "json":
        print_json(value)
    else:
        rows = [(name.replace("_", " ").capitalize(), _named_text(name, part)) for name, part in value.items()]
        click.echo(pairs(rows))


def print_rows(rows: Iterable[Mapping[str, object]], heads: Mapping[str, str], output: str, *, none: str) -> None:
    """A list; `heads`: title of a column -> where its cells are, as `user.email`."""
    found = list(rows)
    if output == "json":
        print_json(found)
    elif found:
        cells = [[_named_text(path, _at(row, path)) for path in heads.values()] for row in found]
        click.echo(table(list(heads), cells))
    else:
        click.echo(none, err=True)


def only_row(rows: Iterable[Row], missing: str) -> Row:
    """The row that a filter names exactly; with more than one the portal did not filter, and nothing may change."""
    found = list(islice(rows, 2))
    if not found:
        raise ClientError(missing)
    if len(found) > 1:
        raise ClientError("the portal answered with more than one row where one is asked for, so nothing is changed")
    return found[0]


def _at(row: Mapping[str, object], path: str) -> object:
    value: Any = row
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _named_text(name: str, value: object) -> str:
    """Moments, by their names, are local and to the second wherever they stand."""
    is_moment = name == "at" or name.endswith("_at")
    return moment(value) if is_moment and isinstance(value, str) else cell_text(value)


def cell_text(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.{3 if abs(value) >= 0.01 else 6}f}".rstrip("0").rstrip(".")
    if isinstance(value, list):
        return ", ".join(cell_text(item) for item in value)
    if isinstance(value, dict):
        return ", ".join(f"{name} {_named_text(name, part)}" for name, part in value.items())
    return clean(value)


def is_terminal() -> bool:
    return sys.stdout.isatty()


@contextmanager
def shown_log() -> Iterator[ShownText]:
    """What a program printed, in pieces, as standard output gets it."""
    text = ShownText(colours=is_terminal())
    try:
        yield text
    finally:
        click.echo(text.close(), nl=False, color=True)


def done(text: str) -> None:
    """That something was done, where there is nothing to print: standard error."""
    note(clean(text))


def note(text: str) -> None:
    """To people only: standard error."""
    click.echo(text, err=True)


@contextmanager
def options_named(options: Mapping[str, str]) -> Iterator[None]:
    """A refusal of a field names the option that it was given as; `options`: of fields."""
    try:
        yield
    except ApiError as error:
        named = [replace(one, field=options.get(one.field, one.field)) for one in error.errors]
        raise ApiError(error.status, error.title, "" if named else error.detail, named) from error


def print_error(error: ClientError) -> None:
    errors = error.errors if isinstance(error, ApiError) else []
    text = str(error)
    if isinstance(error, ApiError) and errors and all(item.message in error.detail for item in errors):
        text = error.title  # the rest is said field by field
    click.echo(f"{click.style('Error:', fg='red')} {clean(text)}", err=True)
    for item in errors:
        click.echo(f"  {clean(item.field)}: {clean(item.message)}", err=True)


def table(heads: Sequence[str], rows: Sequence[Sequence[object]], right: frozenset[int] = frozenset()) -> str:
    """Columns as wide as what is in them; those numbered in `right` end at the same place."""
    cells = [[clean(cell) for cell in row] for row in (heads, *rows)]
    widths = [max(display_width(row[column]) for row in cells) for column in range(len(heads))]

    def line(row: list[str]) -> str:
        parts = (padded(c, w, right=i in right) for i, (c, w) in enumerate(zip(row, widths, strict=True)))
        return "  ".join(parts).rstrip()

    head, *body = map(line, cells)
    return "\n".join([click.style(head, bold=True), *body])


def job_name(number: int, array: schemas.ArrayPlace | None) -> str:
    """As `18_3` for a job of an array."""
    return f"{array['number']}_{array['index']}" if array else str(number)


def waits_for(reason: schemas.JobReason) -> str:
    """Of a waiting job: squeue's word, or the reason code written like one."""
    return clean(reason["slurm"] or code_text(reason["code"]))


def code_text(code: str) -> str:
    """As squeue writes its own: `WaitingForRound`."""
    return clean("".join(part.capitalize() for part in code.split("_")))


def state_text(job: schemas.Job) -> str:
    return click.style(clean(job["state"]), fg=COLOURS.get(job["state"]))


def retry_text(job: schemas.Job, now: datetime | None = None) -> str:
    """Of a job that waits to be tried again: why, in how long, and which attempt it will be; else nothing."""
    retry = job.get("retry")
    if not retry or not retry["at"]:
        return ""
    left_s = (datetime.fromisoformat(retry["at"]) - (now or datetime.now(UTC))).total_seconds()
    if left_s <= 0:
        return ""
    of = f" of {retry['of']}" if retry["of"] else ""
    return f"{clean(retry['why'])}; tried again in {span_text(left_s)} (attempt {retry['attempt']}{of})."


def reason_text(job: schemas.Job) -> str:
    if job.get("ending"):
        return "It was asked to end; its GPUs are free when its program is gone."
    return retry_text(job) or clean(job["reason"]["text"])


def gpus_text(job: schemas.Job) -> str:
    """What it holds, of what it may: `2 of 1-6 titan_xp`, or `50% of 1 titan_xp`."""
    held, percent = job["allocation"], job["gpus"]["share_percent"]
    if percent < 100:
        return f"{percent}% of 1 {held['type']}" if held else f"0 of {percent}%"
    low, high = job["gpus"]["min"], job["gpus"]["max"]
    span = f"{low} or more" if high is None else str(low) if low == high else f"{low}-{high}"
    return f"{held['count']} of {span} {held['type']}" if held else f"0 of {span}"


def asked_rows(job: schemas.JobDetail) -> list[tuple[str, object]]:
    """What its user set of it beyond the program and its size; what was left open is empty."""
    longest_s, cost = job["max_duration_s"], job["max_cost"]
    cpus, memory_mib = job["spec"].get("cpus"), job["spec"].get("memory")
    return [
        ("Processors", f"{cpus} of each node" if cpus else ""),
        ("Memory", f"{memory_mib:,} MiB of each node" if memory_mib else ""),
        ("Deadline", moment(job["deadline_at"])),
        ("Max duration", "" if longest_s is None else f"{span_text(longest_s)} in training"),
        ("Max cost", "" if cost is None else f"{cost} {job['cost']['currency']}"),
        ("Nice", job["nice"] or ""),
        ("Slurm", clean(_sbatch(job["spec"].get("slurm")))),
        ("Labels", ", ".join(f"{clean(key)}={clean(value)}" for key, value in sorted(job["labels"].items()))),
    ]


def _sbatch(options: Mapping[str, object] | None) -> str:
    """As its command line has them."""
    said = (
        (name.replace("_", "-"), value) for name, value in (options or {}).items() if value not in (None, False, [])
    )
    return " ".join(
        f"--{name}" if value is True else f"--{name}={','.join(value) if isinstance(value, list) else value}"
        for name, value in said
    )


def progress_text(job: schemas.Job) -> str:
    return f"{job['step']:,}/{job['total_steps']:,}"


def money(cost: schemas.CostNow, key: Literal["so_far", "estimated"]) -> str:
    return "-" if cost[key] is None else f"{cost[key]} {cost['currency']}"


def age(text: str | None, now: datetime | None = None) -> str:
    return "-" if not text else span_text(((now or datetime.now(UTC)) - _time(text)).total_seconds())


def span_text(seconds: float) -> str:
    """Two units at most: `45s`, `3m 20s`, `2h 05m`, `3d 4h`."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3_600:
        return f"{whole // 60}m {whole % 60:02d}s"
    if whole < 86_400:
        return f"{whole // 3_600}h {whole % 3_600 // 60:02d}m"
    return f"{whole // 86_400}d {whole % 86_400 // 3_600}h"


def moment(text: str | None) -> str:
    """In the time zone of the terminal, which it names."""
    return _time(text).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z") if text else "-"


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def pairs(rows: Sequence[tuple[str, Callable[[], object] | object]]) -> str:
    """Names and values under each other; what is empty is left out."""
    shown: list[tuple[str, Any]] = [(name, value() if callable(value) else value) for name, value in rows]
    shown = [(name, value) for name, value in shown if value not in (None, "", "-")]
    width = max(display_width(name) for name, _ in shown)
    return "\n".join(f"{click.style(padded(name, width), bold=True)}  {value}" for name, value in shown)
