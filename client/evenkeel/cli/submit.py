"""`evenkeel submit`."""

from __future__ import annotations

import re
import shlex
import sys
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from evenkeel.cli.bundle import pack
from evenkeel.cli.config import connect
from evenkeel.cli.going_on import going_on
from evenkeel.cli.numbers import Number, WholeNumber
from evenkeel.cli.output import as_json, clean, note, options_named, print_json, state_text
from evenkeel.cli.waiting import finish
from evenkeel.client import Client, ConnectionFailed, Json
from evenkeel.yaml_loader import YamlProblem, load

#: As the portal takes it.
MAX_BYTES = 256 * 1024
COMMAND_KEY = "evenkeel.command"
#: Keys of the job file whose option is not called like them.
OPTIONS = {"model_type": "--model", "total_steps": "--steps"}
#: Mappings whose values are text as it is written: 1234567, null and 2026-02-29 may be a commit, a word and a name.
TEXTS = ("labels", "env")


class AfterDashes(click.Command):
    """Keeps what follows `--` apart from the arguments: it is the job's command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            at = args.index("--")
            ctx.meta[COMMAND_KEY] = args[at + 1 :]
            args = args[:at]
        return super().parse_args(ctx, args)


def job_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """What makes a job file: a file, options that change it, and a command after `--`."""
    options = (
        click.argument("file", required=False, metavar=""),
        click.option("--model", metavar="TYPE", help="A program of the catalogue (model_type)."),
        click.option("--steps", type=WholeNumber(min=1), help="Steps to train (total_steps)."),
        click.option("--gpus", metavar="MIN-MAX", help="How many GPUs, as 1-6 or 4, or a share of one, as 0.5."),
        click.option("--batch-size", type=WholeNumber(min=1), help="Global batch, over all GPUs."),
        click.option("--project", help="Key of the project that pays."),
        click.option("--cluster", help="Cluster to run on, or the portal's choice: earliest or cheapest."),
        click.option("--partition", help="Set of nodes to run on."),
        click.option("--name", help="What the job is called."),
        click.option("--dependency", metavar="LIST", help="Queue after other jobs, as afterok:12:13 or singleton."),
        click.option("--array", metavar="INDICES", help="One job for each index, as 0-15 or 0-15%4: 4 at once."),
        click.option("--data", multiple=True, metavar="NAME=PATH|URL", help="Data that it reads, by path or URL."),
        click.option(
            "--code", type=click.Path(path_type=Path), metavar="DIR", help="Upload this directory as the job's code."
        ),
        click.option(
            "--set",
            "settings",
            multiple=True,
            metavar="KEY=VALUE",
            help="Any other key of a job file, as checkpoint.keep=5.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def typed(parts: Mapping[str, object]) -> dict[str, str]:
    """The keys that were given as options which are called otherwise."""
    return {key: option for key, option in OPTIONS.items() if parts.get(option.removeprefix("--")) is not None}


@click.command(cls=AfterDashes, options_metavar="[OPTIONS] [FILE|-] [-- COMMAND...]")
@job_options
@click.option("--wait", is_flag=True, help="Stay until the job has ended; the exit code says how.")
@click.option("--timeout", type=Number(min=0), metavar="S", help="With --wait: give up after this time.")
@click.option("--idempotency-key", metavar="K", help="The same key never makes a second job; default: a new one.")
@as_json
@click.pass_context
def submit(
    ctx: click.Context,
    /,
    wait: bool,
    timeout: float | None,
    idempotency_key: str | None,
    code: Path | None,
    output: str,
    **parts: Any,
) -> None:
    """Submit a training job.

    A job file says what to train, or the options do; options change what a file says.

    \b
    Examples:
      evenkeel submit job.yaml
      evenkeel submit job.yaml --set gpus.max=4 --set labels.stage=nightly --wait
      evenkeel submit --model resnet50 --steps 2000 --gpus 1-6
      evenkeel submit --steps 500 --name mine --code . -- python train.py --lr 0.1
      evenkeel submit evaluate.yaml --dependency afterok:12
      evenkeel submit sweep.yaml --array 0-15%4
      evenkeel submit job.yaml --data imagenet=s3://datasets/imagenet
      generate-job | evenkeel submit - --idempotency-key "$CI_PIPELINE_ID"
    """
    job = job_file_of(command=ctx.meta.get(COMMAND_KEY), **parts)
    if timeout is not None and not wait:
        raise click.UsageError("--timeout goes with --wait")
    key = idempotency_key or str(uuid.uuid4())
    client = connect()
    if code is not None:
        upload(client, job, code)
    again = f"The job may have been submitted: submit it again with --idempotency-key {key} to submit it once."
    try:
        with options_named(typed(parts)), going_on(again):
            made = client.submit(job, idempotency_key=key)
    except ConnectionFailed:
        note(again)
        raise
    for text in made.get("warnings", ()):
        note(f"Note: {clean(text)}")
    if not wait and output == "json":
        print_json(made)
        return
    array = made["array"]
    what = f"Array {array['number']} of {array['size']} jobs" if array else f"Job {made['number']}"
    click.echo(f"{what} submitted: {clean(made['name'])}, {state_text(made)}", err=output == "json")
    if wait:
        finish(client, str(array["number"] if array else made["number"]), timeout, output)


def upload(client: Client, job: Json, folder: Path) -> None:
    """The directory as the job's bundle; the same files again are no second upload's worth of room."""
    project = job.get("project") or _only_project(client)
    with going_on("Nothing was submitted."):
        packed = pack(folder)
        for line in packed.notes:
            note(line)
        made = client.bundles.upload(str(project), packed.archive)
    files = f"{made['files']:,} file{'' if made['files'] == 1 else 's'}"
    note(f"Code: {files}, {made['bytes']:,} bytes, {made['sha256'][:12]}")
    kept = {key: value for key, value in _mapping(job, "code").items() if key == "subdir"}
    job |= {"project": project, "code": kept | {"bundle": made["sha256"]}}


def _only_project(client: Client) -> str:
    keys = [project["key"] for project in client.projects.list() if project["role"] != "viewer"]
    if len(keys) != 1:
        raise click.UsageError(f"name the --project that the code goes to: {', '.join(keys) or 'there is none'}")
    return str(keys[0])


def job_file_of(
    *,
    file: str | None,
    command: list[str] | None,
    model: str | None,
    steps: int | None,
    gpus: str | None,
    batch_size: int | None,
    project: str | None,
    cluster: str | None,
    partition: str | None,
    name: str | None,
    dependency: str | None,
    array: str | None,
    data: tuple[str, ...],
    settings: tuple[str, ...],
) -> Json:
    if file is None and model is None and command is None:
        raise click.UsageError("give a job file, or --model TYPE, or a command after --")
    job = read_job_file(file) if file is not None else {}
    if command is not None:
        job["command"] = command[0] if len(command) == 1 else shlex.join(command)
    given = {"model_type": model, "total_steps": steps, "batch_size": batch_size, "project": project, "name": name}
    given["array"] = array
    given |= {"cluster": cluster, "partition": partition}
    job |= {key: value for key, value in given.items() if value is not None}
    if gpus is not None:
        given_before = job.get("gpus")
        kept = given_before if isinstance(given_before, dict) else {}
        job["gpus"] = {key: value for key, value in kept.items() if key not in ("min", "max", "share")} | _gpus(gpus)
    if dependency is not None:
        job["dependencies"] = _dependencies(dependency)
    if data:
        job["data"] = _data(job.get("data"), data)
    for setting in settings:
        set_value(job, setting)
    return job


def _dependencies(text: str) -> list[Json]:
    """As sbatch takes them: type:job[:job...], separated by commas; a type alone is `singleton`."""
    found: list[Json] = []
    for part in text.split(","):
        kind, *jobs = part.strip().split(":")
        if not kind or not all(jobs):
            raise click.UsageError(f"--dependency: {part!r} is not of the form afterok:12:13")
        found += [{"type": kind, "job": int(job) if job.isascii() and job.isdecimal() else job} for job in jobs] or [
            {"type": kind}
        ]
    return found


def _data(before: object, given: tuple[str, ...]) -> list[Json]:
    """What the file names, and what options name beside it or in its place; the file's other keys stay."""
    listed = before if isinstance(before, list) else []
    found = {str(one.get("name")): dict(one) for one in listed if isinstance(one, dict)}
    for text in given:
        name, _, place = text.partition("=")
        if not name or not place:
            raise click.BadParameter(f"{text!r} is not NAME=PATH or NAME=URL", param_hint="--data")
        kept = {key: value for key, value in found.get(name, {}).items() if key not in ("path", "url")}
        found[name] = {"name": name} | kept | {"url" if "://" in place else "path": place}
    return list(found.values())


def read_job_file(file: str) -> Json:
    """The job file; what its keys mean is the portal's to judge."""
    try:
        data = sys.stdin.buffer.read(MAX_BYTES + 1) if file == "-" else _read(Path(file))
        text = data.decode()
    except UnicodeDecodeError as error:
        raise click.UsageError(f"cannot read {file}: it is not UTF-8 text (byte {error.start + 1:,})") from None
    except OSError as error:
        raise click.UsageError(f"cannot read {file}: {error.strerror or error}") from None
    if len(data) > MAX_BYTES:
        raise click.UsageError(f"{file}: a job file has {MAX_BYTES // 1024} KiB at most")
    document = _yaml(text, "standard input" if file == "-" else file)
    if not isinstance(document, dict):
        raise click.UsageError(f"{file}: a job file is a mapping of keys to values")
    return document


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(MAX_BYTES + 1)


def _yaml(text: str, where: str) -> Any:
    try:
        return load(text)
    except YamlProblem as problem:
        raise click.UsageError(f"{where}, {problem}") from None


def _gpus(text: str) -> dict[str, int | float]:
    if re.fullmatch(r"0?\.[0-9]+", text):
        return {"share": float(text)}
    match = re.fullmatch(r"([0-9]+)(?:-([0-9]+))?", text)
    if not match:
        raise click.BadParameter(
            f"{text!r} is neither a number, nor a range as 1-6, nor a share as 0.5", param_hint="--gpus"
        )
    return {"min": int(match[1]), "max": int(match[2] or match[1])}


def set_value(job: Json, setting: str, *, null_removes: bool = False) -> None:
    """`null_removes`: in changes of a job, where null takes a label or variable away."""
    key, equals, value = setting.partition("=")
    *path, last = key.split(".")
    if not equals or not all((*path, last)):
        raise click.BadParameter(f"{setting!r} is not KEY=VALUE", param_hint="--set")
    place = job
    for part in path:
        place[part] = place = _mapping(place, part)
    removes = null_removes and value.strip() == "null"
    place[last] = value.strip() if path and path[0] in TEXTS and not removes else _yaml(value, f"--set {key}")


def _mapping(place: Json, key: str) -> Json:
    value = place.get(key)
    if value is not None and not isinstance(value, dict):
        raise click.UsageError(f"{key} is {value!r}, not a mapping of keys to values")
    return dict(value or {})
