"""Waiting for the end of a job: progress for people, an exit code for CI."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from typing import TypeVar

import click

from evenkeel import schemas
from evenkeel.cli.arrays import job_or_array, print_array, states_text
from evenkeel.cli.config import connect
from evenkeel.cli.numbers import Number
from evenkeel.cli.output import (
    as_json,
    clean,
    gpus_text,
    job_name,
    print_json,
    progress_text,
    reason_text,
    span_text,
    state_text,
)
from evenkeel.client import ApiError, Client, ConnectionFailed

T = TypeVar("T")
FAILED_CALL, NOT_FOUND, NOT_IN_TIME = 1, 102, 101
EXIT_CODES = {"succeeded": 0, "failed": 100, "cancelled": 103}
POLL_S = 2.0
UNREACHABLE_S = 300.0  # a portal may be away this long: its jobs go on


@click.command()
@click.argument("job")
@click.option("--timeout", type=Number(min=0), metavar="S", help="Give up after this many seconds.")
@as_json
def wait(job: str, timeout: float | None, output: str) -> None:
    """Wait until a job, or all of an array, has ended; the exit code says how.

    \b
    Examples:
      evenkeel wait 12
      evenkeel wait 12 --timeout 3600 || echo "ended with $?"

    \b
    Exit codes: 0 succeeded, 100 failed, 101 not finished in time, 102 not found, 103 cancelled.
    """
    finish(connect(), job, timeout, output)


def finish(client: Client, name: str, timeout_s: float | None, output: str) -> None:
    """Waits, prints how it ended, and leaves the program with the job's code, or the array's worst."""

    def job() -> None:
        found = _await_end(name, lambda: client.job(name), _status, _has_ended, timeout_s)
        if output == "json":
            print_json(found)
        else:
            click.echo(_ending(found))
        raise SystemExit(EXIT_CODES.get(found["state"], NOT_IN_TIME))

    def array(number: int) -> None:
        found = _await_end(name, lambda: client.arrays.get(number), _array_status, _all_ended, timeout_s)
        print_array(found, output)
        raise SystemExit(_array_code(found))

    job_or_array(name, job, array)


def _has_ended(job: schemas.JobDetail) -> bool:
    return job["state"] in EXIT_CODES


def _all_ended(array: schemas.JobArray) -> bool:
    return array["ended"]


def _array_status(array: schemas.JobArray) -> str:
    return f"array {array['number']}  {states_text(array)}"


def _array_code(array: schemas.JobArray) -> int:
    if not array["ended"]:
        return NOT_IN_TIME
    worst = [state for state in ("failed", "cancelled", "succeeded") if state in array["states"]]
    return EXIT_CODES[worst[0]]


def _await_end(
    name: str,
    look: Callable[[], T],
    status: Callable[[T], str],
    has_ended: Callable[[T], bool],
    timeout_s: float | None,
) -> T:
    started = heard = time.monotonic()
    line = StatusLine()
    found: T | None = None
    try:
        while True:
            try:
                found, heard = look(), time.monotonic()
            except (ConnectionFailed, ApiError) as error:
                lasting = isinstance(error, ApiError) and error.status < 500
                if lasting or time.monotonic() - heard > UNREACHABLE_S:
                    raise
                line.show(f"no answer ({clean(error)}), trying on")
            else:
                line.show(status(found))
                if has_ended(found):
                    return found
            left_s = None if timeout_s is None else started + timeout_s - time.monotonic()
            if left_s is not None and left_s <= 0:
                return found or look()
            time.sleep(POLL_S if left_s is None else min(POLL_S, left_s))
    except KeyboardInterrupt as error:
        error.add_note(f"The job keeps running: `evenkeel wait {name}` waits again, `evenkeel cancel {name}` ends it.")
        raise
    finally:
        line.close()


def _status(job: schemas.JobDetail) -> str:
    parts = [
        f"job {job_name(job['number'], job['array'])}",
        state_text(job),
        progress_text(job),
        f"GPUs {gpus_text(job)}",
    ]
    speed = job["throughput"]["steps_per_s"]
    if speed:
        parts.append(f"{speed:.3g} steps/s")
    if job["state"] == "queued":
        parts.append(reason_text(job))
    return "  ".join(parts)


def _ending(job: schemas.JobDetail) -> str:
    times = job["times"]
    text = f"Job {job_name(job['number'], job['array'])} {state_text(job)} at step {progress_text(job)}"
    text += f" after {span_text(times['queueing_s'] + times['launching_s'] + times['running_s'])}"
    reason = job["exit"]["message"] if job["exit"] else None
    return f"{text}: {clean(reason)}" if reason and job["state"] != "succeeded" else text


class StatusLine:
    """One line rewritten in place on a terminal; elsewhere a line whenever the state changes."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._last = ""

    def show(self, text: str) -> None:
        if self._terminal:
            width, plain = shutil.get_terminal_size().columns, click.unstyle(text)
            click.echo(f"\r\033[2K{text if len(plain) < width else plain[: width - 1]}", err=True, nl=False)
        elif (kind := text.partition("  ")[2].partition("  ")[0]) != self._last:
            self._last = kind
            click.echo(text, err=True)

    def close(self) -> None:
        if self._terminal and self._last != "closed":
            click.echo("\r\033[2K", err=True, nl=False)
            self._last = "closed"
