"""`evenkeel hold`, `release`, `set`, `resubmit`, `move`, `bulk`: what is done to jobs that are there."""

from __future__ import annotations

import re
import time
import uuid
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, get_args

import click

from evenkeel import schemas
from evenkeel.cli.arrays import job_or_array
from evenkeel.cli.config import connect
from evenkeel.cli.going_on import going_on
from evenkeel.cli.numbers import Number
from evenkeel.cli.output import as_json, clean, job_name, note, print_json, state_text, table
from evenkeel.cli.submit import set_value
from evenkeel.cli.waiting import FAILED_CALL
from evenkeel.client import Client, Json
from evenkeel.resources import BulkAction

LOOK_S = 2.0
LIVE = ["queued", "starting", "running", "rescaling"]


def _each_or_array(action: Literal["hold", "release"], jobs: tuple[str, ...], output: str) -> None:
    """One name after the other; an array's number stands for those of its jobs that have not ended."""
    client = connect()
    act = client.operations.hold if action == "hold" else client.operations.release
    answers: list[schemas.Job | schemas.BulkAnswer] = []
    refused = 0

    def job(name: str) -> None:
        answers.append(changed := act(name))
        if output != "json":
            _print_job(changed)

    def array(number: int) -> None:
        nonlocal refused
        client.arrays.get(number)  # one that is none is said to be none
        answers.append(changed := client.operations.bulk(action, {"array": number, "state": LIVE}))
        refused += changed["refused"]
        if output != "json":
            _print_array(number, action, changed)

    for name in jobs:
        job_or_array(name, partial(job, name), array)
    if output == "json":
        print_json(answers[0] if len(answers) == 1 else answers)
    if refused:
        click.get_current_context().exit(FAILED_CALL)


def _print_job(job: schemas.Job) -> None:
    click.echo(f"Job {job_name(job['number'], job['array'])}: {clean(job['name'])}, {state_text(job)}")


def _print_array(number: int, action: str, answer: schemas.BulkAnswer) -> None:
    said = "on hold" if action == "hold" else "released"
    click.echo(f"Array {number}: {answer['succeeded']} jobs {said}, {answer['refused']} refused")
    for reason, count in Counter(one["detail"] for one in answer["results"] if one["status"] >= 300).items():
        note(f"  {count} refused: {clean(reason or '')}")


def _each(jobs: tuple[str, ...], output: str, act: Callable[[str], schemas.Job]) -> None:
    """One job after the other; the first refusal ends it."""
    changed = [act(job) for job in jobs]
    if output == "json":
        print_json(changed[0] if len(changed) == 1 else changed)
        return
    for job in changed:
        _print_job(job)


@click.command()
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...")
@as_json
def hold(jobs: tuple[str, ...], output: str) -> None:
    """Put jobs on hold: they get no GPUs until they are released. Running jobs are checkpointed first.

    Of an array all jobs that have not ended.
    """
    _each_or_array("hold", jobs, output)


@click.command()
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...")
@as_json
def release(jobs: tuple[str, ...], output: str) -> None:
    """Release jobs that are on hold or suspended; of an array all of them."""
    _each_or_array("release", jobs, output)


@click.command("stop-retrying")
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...")
@as_json
def stop_retrying(jobs: tuple[str, ...], output: str) -> None:
    """Stop the retries of jobs that wait for one: they count as failed."""
    _each(jobs, output, lambda name: connect().operations.stop_retrying(name))


@click.command("set")
@click.argument("job")
@click.argument("settings", nargs=-1, required=True, metavar="KEY=VALUE...")
@as_json
def change(job: str, settings: tuple[str, ...], output: str) -> None:
    """Change a job: name, nice, labels, total_steps (upwards), max_cost, max_duration, deadline, restartable.

    \b
    Values are YAML; null removes one.
    Examples:
      evenkeel set 12 total_steps=40000 nice=10
      evenkeel set 12 labels.stage=nightly labels.draft=null max_cost=25
    """
    client, changes = connect(), _changes(settings)

    def patch() -> None:
        _each((job,), output, lambda name: client.operations.patch(name, changes))

    job_or_array(job, patch, partial(_is_array, client))


def _is_array(client: Client, number: int) -> None:
    first = re.split("[^0-9]", client.arrays.get(number)["indices"])[0]
    raise click.UsageError(
        f"{number} is an array: name one of its jobs, as {number}_{first}; `evenkeel arrays limit {number} N` "
        "changes how many of them run at once"
    )


@click.command()
@click.argument("job")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="A key of the job file to change.")
@click.option("--from", "resume_from", metavar="latest|STEP", help="Start from the job's checkpoint of this step.")
@click.option("--idempotency-key", metavar="K", help="The same key never makes a second job; default: a new one.")
@as_json
def resubmit(
    job: str, settings: tuple[str, ...], resume_from: str | None, idempotency_key: str | None, output: str
) -> None:
    """Submit a job's file again, with changes.

    \b
    Examples:
      evenkeel resubmit 12 --set batch_size=512
      evenkeel resubmit 12 --from latest --set total_steps=40000
    """
    changes = _changes(settings)
    if resume_from is not None:
        changes["resume_from"] = (
            {"step": int(resume_from)} if resume_from.isascii() and resume_from.isdecimal() else resume_from
        )
    key = idempotency_key or str(uuid.uuid4())
    again = f"The job may have been submitted: resubmit it with --idempotency-key {key} to submit it once."
    with going_on(again):
        _each((job,), output, lambda name: connect().operations.resubmit(name, changes, idempotency_key=key))


@click.command()
@click.argument("job")
@click.argument("project")
@as_json
def move(job: str, project: str, output: str) -> None:
    """Move a job to another project, which pays for it from then on."""
    _each((job,), output, lambda name: connect().operations.move(name, project))


@click.command()
@click.argument("action", type=click.Choice(get_args(BulkAction)))
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="Jobs with this label, all of them.")
@click.option("--state", "states", multiple=True, help="Jobs in this state, or in one of several, as queued,running.")
@click.option("--project", help="Jobs of this project.")
@click.option("--cluster", metavar="NAME", help="Jobs of this cluster.")
@click.option("--owner", help="Jobs of this person (email, or me).")
@click.option("--search", help="Jobs with this in their name.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Of `label` labels, of `resubmit` keys.")
@click.option(
    "--within",
    "within_s",
    type=Number(0, 600),
    default=0,
    metavar="S",
    help="While no job matches, look again for this many seconds.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@as_json
def bulk(action: BulkAction, settings: tuple[str, ...], within_s: float, yes: bool, output: str, **chosen: Any) -> None:
    """Apply one action to all matching jobs, 1,000 at most.

    `cancel` is for jobs that have not ended, unless --state says otherwise. No match is no error.

    \b
    Examples:
      evenkeel bulk cancel --label sweep=7 --state queued
      evenkeel bulk label --label sweep=7 --set stage=old
      evenkeel bulk cancel --label run="$CI_PIPELINE_ID" --within 60 --yes
    Exit code 1 where one of them was refused.
    """
    states = [state for given in chosen["states"] for state in given.split(",")]
    filters = {"label": list(chosen["labels"]), "state": states}
    filters |= {name: chosen[name] for name in ("project", "cluster", "owner", "search")}
    filters = {name: value for name, value in filters.items() if value}
    if not filters:
        raise click.UsageError("say which jobs: --label, --state, --project, --cluster, --owner or --search")
    if action == "cancel" and not states:
        filters["state"] = LIVE
    client = connect()
    if not yes:
        click.confirm(f"{action} {_count(client, filters)} jobs?", abort=True, err=True)
    more: Json = {"changes": _changes(settings)} if settings else {}
    if action == "label":
        more = _changes(tuple(f"labels.{setting}" for setting in settings)) or {"labels": {}}
    answer = _matching(lambda: client.operations.bulk(action, filters, **more), within_s)
    _report(answer, output)
    if answer["refused"]:
        click.get_current_context().exit(FAILED_CALL)


def _matching(act: Callable[[], schemas.BulkAnswer], within_s: float) -> schemas.BulkAnswer:
    """A submission whose sender was ended may still be on its way to the portal: its job appears some time later."""
    give_up_at = time.monotonic() + within_s
    while not (answer := act())["results"] and time.monotonic() < give_up_at:
        time.sleep(min(LOOK_S, max(0.0, give_up_at - time.monotonic())))
    return answer


def _count(client: Client, filters: Json) -> int:
    return sum(1 for _ in client.jobs(**filters))


def _report(answer: schemas.BulkAnswer, output: str) -> None:
    if output == "json":
        print_json(answer)
        return
    if not answer["results"]:
        note("No job matches.")
        return
    rows = [[r["number"] or r["id"], r["status"], r["made"] or "", r["detail"] or ""] for r in answer["results"]]
    if rows:
        click.echo(table(("JOB", "STATUS", "MADE", "DETAIL"), rows, right=frozenset({0, 1, 2})))
    click.echo(f"{answer['succeeded']} done, {answer['refused']} refused.", err=True)


def _changes(settings: tuple[str, ...]) -> Json:
    changes: Json = {}
    for setting in settings:
        set_value(changes, setting, null_removes=True)
    return changes
