"""`evenkeel ls`, `show`, `logs`, `cancel`."""

from __future__ import annotations

import csv
import shutil
import sys
import time
from itertools import islice

import click

from evenkeel import schemas
from evenkeel.cli.arrays import job_or_array, print_array
from evenkeel.cli.clusters import clusters_of, clusters_table, note_engines_away
from evenkeel.cli.config import connect
from evenkeel.cli.going_on import going_on
from evenkeel.cli.numbers import WholeNumber
from evenkeel.cli.output import (
    age,
    as_json,
    asked_rows,
    clean,
    fitted,
    gpus_text,
    is_terminal,
    job_name,
    moment,
    money,
    pairs,
    print_json,
    progress_text,
    reason_text,
    retry_text,
    shown_log,
    state_text,
    table,
    waits_for,
)
from evenkeel.cli.starts import start_text
from evenkeel.cli.waiting import EXIT_CODES
from evenkeel.client import Client
from evenkeel.program_output import ShownText

FOLLOW_S = 1.0
LogQuery = dict[str, int | str]
HEADS = ("JOB", "NAME", "PROJECT", "STATE", "REASON", "STEPS", "GPUS", "AGE", "STARTS", "COST")


@click.command()
@click.option("--state", help="queued, starting, running, rescaling, succeeded, failed or cancelled.")
@click.option("--project", help="Only jobs of this project.")
@click.option("--cluster", metavar="NAME", help="Only jobs of this cluster.")
@click.option("--partition", help="Only jobs of this partition.")
@click.option("--owner", help="Only jobs of this person (email, or me).")
@click.option("--search", help="Only jobs with this in their name.")
@click.option("--label", metavar="KEY=VALUE", help="Only jobs with this label.")
@click.option("--array", metavar="NUMBER", help="Only jobs of this array.")
@click.option(
    "--limit", type=WholeNumber(min=1), default=50, show_default=True, help="At most this many, newest first."
)
@click.option("--csv", is_flag=True, help="All matching jobs as CSV, 200,000 at most.")
@as_json
def ls(limit: int, csv: bool, output: str, **filters: str | None) -> None:
    """List jobs of all clusters; REASON is why a job waits, in squeue's word where it has one.

    \b
    Examples:
      evenkeel ls --state running
      evenkeel ls --cluster lab
      evenkeel ls --project vision --output json | jq '.[].number'
      evenkeel ls --label sweep=7 --csv > sweep.csv
    """
    wanted = {key: value for key, value in filters.items() if value is not None}
    if csv:
        sys.stdout.buffer.writelines(connect().jobs_csv(**wanted))
        return
    client = connect()
    jobs = list(islice(client.jobs(**wanted), limit))
    if output == "json":
        print_json(jobs)
    elif not jobs:
        click.echo(_no_jobs(wanted.get("owner")))
    else:
        clusters = clusters_of(client)
        _print_table(jobs, with_cluster=len(clusters) > 1)
        note_engines_away(clusters)


def _no_jobs(owner: str | None) -> str:
    if owner in (None, "me"):
        return "No jobs."
    return f"No jobs of {clean(owner)} that you may see; --owner takes a whole email address, or me."


def _print_table(jobs: list[schemas.Job], *, with_cluster: bool) -> None:
    """On a terminal cut to its width. The state is coloured after that: colour codes have no width."""
    rows, right = [_row(job) for job in jobs], {0, 5, 7, 9}
    if with_cluster:
        names = [job["cluster"]["name"] for job in jobs]
        text = click.unstyle(clusters_table(HEADS, rows, names, at=HEADS.index("STATE"), right=right))
    else:
        text = click.unstyle(table(HEADS, rows, right=frozenset(right)))
    if is_terminal():
        width = shutil.get_terminal_size().columns
        text = "\n".join(fitted(line, width) for line in text.split("\n"))
    head, *lines = text.split("\n")
    click.echo("\n".join([click.style(head, bold=True), *map(_coloured, lines, jobs)]))


def _row(job: schemas.Job) -> list[object]:
    return [
        job_name(job["number"], job["array"]),
        job["name"],
        job["project"]["key"],
        f"{job['state']}{_still(job)}{_emulated(job)}",
        _waits(job),
        progress_text(job),
        gpus_text(job),
        age(job["submitted_at"]),
        start_text(job["expected_start"]),
        money(job["cost"], "so_far"),
    ]


def _waits(job: schemas.Job) -> str:
    if retry_text(job):
        return "Retry"
    return waits_for(job["reason"]) if job["state"] == "queued" or job["reason"]["slurm"] else ""


def _still(job: schemas.Job) -> str:
    return ", ending" if job.get("ending") else ""


def _emulated(job: schemas.Job) -> str:
    return " (emulated)" if job["emulated"] else ""


def _coloured(line: str, job: schemas.Job) -> str:
    at = line.rfind(f"  {job['state']}{_still(job)} ")
    return line if at < 0 else line[: at + 2] + state_text(job) + line[at + 2 + len(job["state"]) :]


@click.command()
@click.argument("job")
@as_json
def show(job: str, output: str) -> None:
    """Show one job, or an array.

    \b
    Examples:
      evenkeel show 12
      evenkeel show 57_3
      evenkeel show 12 --output json | jq .throughput
    """
    client = connect()
    job_or_array(
        job, lambda: _show(client.job(job), output), lambda number: print_array(client.arrays.get(number), output)
    )


def _show(found: schemas.JobDetail, output: str) -> None:
    if output == "json":
        print_json(found)
        return
    array = found["array"]
    owner, ending = found["owner"], found["exit"]
    click.echo(
        pairs(
            [
                ("Job", f"{job_name(found['number'], array)}  {clean(found['name'])}"),
                ("Array", f"{array['number']}, index {array['index']}; job {found['number']}" if array else ""),
                ("Project", f"{clean(found['project']['key'])}, {clean(owner['email'] if owner else 'no owner')}"),
                ("Cluster", clean(found["cluster"]["choice"] or found["cluster"]["name"]).removeprefix("Cluster ")),
                ("State", f"{state_text(found)}{_still(found)}{_emulated(found)}"),
                ("Reason", reason_text(found)),
                ("Note", " ".join(map(clean, found.get("warnings", ())))),
                ("Launch", clean(found["fetching"] or "")),
                ("Program", clean(found["model_type"] or found["command"] or "")),
                ("Steps", f"{progress_text(found)} ({found['progress']:.0%})"),
                ("GPUs", gpus_text(found)),
                ("Placed on", _places(found)),
                *asked_rows(found),
                ("Throughput", _speed(found["throughput"])),
                ("Slowdown", found["slowdown"]),
                ("Resizes", found["resizes"]),
                ("Queue", found["queue_position"]),
                ("Expected start", start_text(found["expected_start"], long=True)),
                ("Submitted", moment(found["submitted_at"])),
                ("Started", moment(found["started_at"])),
                ("Expected end", moment(found["expected_end_at"])),
                ("Finished", moment(found["finished_at"])),
                ("Cost", money(found["cost"], "so_far")),
                ("Estimated", money(found["cost"], "estimated")),
                *((clean(link["name"]), _where(link)) for link in found["links"]),
                ("Exit", clean(ending["message"] or ending["reason"] or "") if ending else ""),
            ]
        )
    )


def _where(link: schemas.JobLink) -> str:
    """Terminals make links of addresses; one to the portal's machine would get the browser's session."""
    if link.get("leads_here"):
        return f"{clean(link['url'])} (leads to the portal's machine: do not open it in the browser that is signed in)"
    may = " (may lead on to the portal's machine: open it in a private window)" if link.get("may_lead_here") else ""
    return clean(link["url"]) + may


def _places(job: schemas.Job) -> str:
    held = job["allocation"]["gpus"] if job["allocation"] else []
    return ", ".join(f"{clean(gpu['node'])}:{gpu['index']}" for gpu in held)


def _speed(throughput: schemas.Throughput) -> str:
    seen, predicted = throughput["steps_per_s"], throughput["predicted_steps_per_s"]
    parts = [f"{seen:.3g} steps/s"] if seen else []
    parts += [f"{predicted:.3g} predicted ({clean(throughput['source'])})"] if predicted else []
    return ", ".join(parts)


@click.command()
@click.argument("job")
@click.option("--follow", "-f", is_flag=True, help="Follow until the job has ended.")
@click.option("--rank", type=WholeNumber(min=0), default=0, show_default=True, help="Which worker's output.")
@click.option("--tail", type=WholeNumber(min=1), metavar="LINES", help="Start this many lines before the end.")
@as_json
def logs(job: str, follow: bool, rank: int, tail: int | None, output: str) -> None:
    """Print the log of a job's worker.

    \b
    Examples:
      evenkeel logs 12 --tail 100
      evenkeel logs 12 -f --rank 1
    """
    client = connect()
    query: LogQuery = {"rank": rank, "tail": tail} if tail else {"rank": rank, "offset": 0}
    if output == "json":
        print_json(client.logs(job, **query))
    elif follow:
        with going_on(f"The job keeps running: `evenkeel logs {job} -f` follows it, `evenkeel cancel {job}` ends it."):
            _follow(client, job, query)
    else:
        with shown_log() as text:
            _print_all(client, job, query, text)


def _follow(client: Client, job: str, query: LogQuery) -> None:
    """Prints what comes until the job has ended; a retry is a new run with a log of its own."""
    with shown_log() as text:
        _follow_runs(client, job, query, text)


def _follow_runs(client: Client, job: str, query: LogQuery, text: ShownText) -> None:
    while True:
        found = client.job(job)
        run = found["run"]["id"]
        if query.get("run", run) != run:
            _print_all(client, job, query, text)
            query = {"rank": query["rank"], "offset": 0}
        if run is not None:
            query = {"rank": query["rank"], "offset": _print_all(client, job, query | {"run": run}, text), "run": run}
        if found["state"] in EXIT_CODES:
            return
        time.sleep(FOLLOW_S)


def _print_all(client: Client, job: str, query: LogQuery, text: ShownText) -> int:
    """Prints everything there is by now; where it ends."""
    while True:
        answer = client.logs(job, **query)
        click.echo(text.feed(answer["text"]), nl=False, color=True)
        at = int(answer["next_offset"])
        if at >= answer["size"] or at <= answer["offset"]:
            return at
        query = {key: value for key, value in query.items() if key != "tail"} | {"offset": at}


@click.command()
@click.argument("job")
@click.option("--name", "names", multiple=True, help="Only this series, as loss; several times for several.")
@click.option(
    "--points", type=WholeNumber(2, 2_000), default=500, show_default=True, help="Points of a series at most."
)
@click.option("--csv", "as_csv", is_flag=True, help="Every point as CSV: name,seconds,step,value.")
@as_json
def metrics(job: str, names: tuple[str, ...], points: int, as_csv: bool, output: str) -> None:
    """Show what a job reported: the last value of each series, or all points.

    \b
    Examples:
      evenkeel metrics 12
      evenkeel metrics 12 --csv > metrics.csv
      evenkeel metrics 12 --name loss --output json | jq '.series.loss[-1]'
    """
    found = connect().metrics(job, names, points)
    if output == "json":
        print_json(found)
    elif as_csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(("name", "seconds", "step", "value"))
        writer.writerows((name, *point) for name, series in sorted(found["series"].items()) for point in series)
    else:
        last = [(name, series[-1]) for name, series in sorted(found["series"].items()) if series]
        rows = [(name, step, f"{value:.6g}") for name, (_, step, value) in last]
        heads = ("SERIES", "STEP", "LAST VALUE")
        click.echo(table(heads, rows, right=frozenset({1, 2})) if rows else "Nothing was reported.")


@click.command()
@click.argument("job")
@as_json
def cancel(job: str, output: str) -> None:
    """Cancel a job, or all of an array; cancelling twice is no error.

    \b
    Examples:
      evenkeel cancel 12
      evenkeel cancel 57      # an array: all of its jobs
      evenkeel cancel 57_3    # its job of index 3
    """
    client = connect()
    job_or_array(
        job,
        lambda: _cancelled(client.cancel(job), output),
        lambda number: _array_cancelled(client.arrays.cancel(number), output),
    )


def _cancelled(job: schemas.Job, output: str) -> None:
    if output == "json":
        print_json(job)
    else:
        click.echo(f"Job {job_name(job['number'], job['array'])} {state_text(job)}")


def _array_cancelled(answer: schemas.ArrayCancelled, output: str) -> None:
    if output == "json":
        print_json(answer)
    else:
        click.echo(f"Array {answer['array']['number']}: {answer['cancelled']} jobs cancelled")
