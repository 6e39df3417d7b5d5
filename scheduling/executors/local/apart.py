"""Isolates errors: a failure of one run is logged for that run, and the others continue."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from scheduling.errors import ExecutorError
from scheduling.executors.local.layout import Layout, RunRecord

log = logging.getLogger(__name__)


def log_apart(verb: str, run_id: str, epoch: int, error: Exception) -> None:
    """One line for expected errors, the whole traceback for others."""
    expected = isinstance(error, ExecutorError | OSError | ValueError)
    text = "%s run %s epoch %s: %s: %s"
    log.warning(text, verb, run_id, epoch, type(error).__name__, error, exc_info=None if expected else error)


@contextmanager
def apart(verb: str, run_id: str, epoch: int) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        log_apart(verb, run_id, epoch, error)


def each_epoch(layout: Layout, records: Iterable[RunRecord]) -> Iterator[tuple[RunRecord, int]]:
    for record in records:
        epochs: list[int] = []
        with apart("looking for epochs of", record.run_id, 0):
            epochs = layout.epochs(record)
        yield from ((record, epoch) for epoch in epochs)
