"""Context of log lines: the job, run, request and task; as JSON if configured.

A task binds its context with `about`, a request adds to it with `note`. Without either, text lines are unchanged.
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
#: In the formats of accounts.tokens and portal.reporting.run_tokens.
_TOKEN = re.compile(r"\b(ekr_|ek_[0-9a-f]{10}_)[A-Za-z0-9_-]{20,}")
_bound: ContextVar[Fields] = ContextVar("log_fields", default={})  # noqa: B039 - never changed in place


def of_job(job: Job) -> Fields:
    return {"job": job.number, "job_id": str(job.pk)}


def of_run(run: Run) -> Fields:
    """`run.job` is loaded wherever a run is handled."""
    return {**of_job(run.job), "run_id": str(run.pk), "epoch": run.epoch}


@contextmanager
def about(fields: Fields) -> Iterator[None]:
    """Log lines inside carry these, besides the context bound already."""
    token = _bound.set({**_bound.get(), **fields})
    try:
        yield
    finally:
        _bound.reset(token)


def note(fields: Fields) -> None:
    """From now on the log lines of this request carry these."""
    if request := origin.current():
        request.about.update(fields)


def bound() -> dict[str, str | int]:
    """The context of a line that is logged now."""
    found: dict[str, str | int] = {}
    if task := current_task:
        found |= {"task": str(task.name), "task_id": str(task.request.id or "")}
    if request := origin.current():
        found |= {"request_id": request.request_id, **request.about}
    return found | dict(_bound.get())


class Context(logging.Filter):
    """For a handler. Context given with the line (`extra`) overrides the bound one."""

    def filter(self, record: logging.LogRecord) -> bool:
        vars(record).pop("request", None)  # Django's: its query may contain secrets of a sign-in
        for name, value in bound().items():
            if not hasattr(record, name):
                setattr(record, name, value)
        return True


def masked(text: str) -> str:
    """Without the secret parts of tokens of runs and of people; the prefix still identifies the token."""
    return _TOKEN.sub(r"\1[redacted]", text)


class TextLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return masked(super().format(record))


class _JsonLines(JsonFormatter):
    def format(self, record: logging.LogRecord) -> str:
        return masked(super().format(record))


def json_lines() -> logging.Formatter:
    """One object per line: at, level, logger, message, the exception if there is one, and the context."""
    names = {"levelname": "level", "name": "logger", "exc_info": "exception"}
    return _JsonLines(
        "%(levelname)s %(name)s %(message)s", timestamp="at", rename_fields=names, json_ensure_ascii=False
    )
