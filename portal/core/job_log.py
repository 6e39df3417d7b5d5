"""What a line of the log says beside its message: the job, run, request and task that it is about; as JSON where asked.

A task binds what it works on with `about`, a request what it turned out to be about with `note`. Without either nothing
is added, and text lines stay as they are.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from celery import current_task
from pythonjsonlogger.json import JsonFormatter

from accounts import origin

if TYPE_CHECKING:
    from portal.jobs.models import Job, Run

Fields = Mapping[str, str | int]
#: As accounts.tokens and portal.reporting.run_tokens make them.
_TOKEN = re.compile(r"\b(ekr_|ek_[0-9a-f]{10}_)[A-Za-z0-9_-]{20,}")
_bound: ContextVar[Fields] = ContextVar("log_fields", default={})  # noqa: B039 - never changed in place


def of_job(job: Job) -> Fields:
    return {"job": job.number, "job_id": str(job.pk)}


def of_run(run: Run) -> Fields:
    """`run.job` is at hand wherever a run is worked on."""
    return {**of_job(run.job), "run_id": str(run.pk), "epoch": run.epoch}


@contextmanager
def about(fields: Fields) -> Iterator[None]:
    """Lines inside carry these, beside what is bound already."""
    token = _bound.set({**_bound.get(), **fields})
    try:
        yield
    finally:
        _bound.reset(token)


def note(fields: Fields) -> None:
    """From here on the lines of this request carry these."""
    if request := origin.current():
        request.about.update(fields)


def bound() -> dict[str, str | int]:
    """What a line that is written now is about."""
    found: dict[str, str | int] = {}
    if task := current_task:
        found |= {"task": str(task.name), "task_id": str(task.request.id or "")}
    if request := origin.current():
        found |= {"request_id": request.request_id, **request.about}
    return found | dict(_bound.get())


class Context(logging.Filter):
    """Of a handler. What a line names itself (`extra`) comes before what is bound."""

    def filter(self, record: logging.LogRecord) -> bool:
        vars(record).pop("request", None)  # Django's: its query may carry secrets of a sign-in
        for name, value in bound().items():
            if not hasattr(record, name):
                setattr(record, name, value)
        return True


def masked(text: str) -> str:
    """Without the secret parts of tokens, of runs and of people; the prefix still says which one it was."""
    return _TOKEN.sub(r"\1[redacted]", text)


class TextLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return masked(super().format(record))


class _JsonLines(JsonFormatter):
    def format(self, record: logging.LogRecord) -> str:
        return masked(super().format(record))


def json_lines() -> logging.Formatter:
    """One object a line: at, level, logger, message, exception where there is one, and what the line is about."""
    names = {"levelname": "level", "name": "logger", "exc_info": "exception"}
    return _JsonLines(
        "%(levelname)s %(name)s %(message)s", timestamp="at", rename_fields=names, json_ensure_ascii=False
    )
