"""The only writer of run states: a guarded update and its event, in one transaction."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from django.db import IntegrityError, transaction

from portal.core import job_log
from portal.database.rows import update_rows
from portal.jobs import events
from portal.jobs.loops import Loop, of_run, reraise_unless_item
from portal.jobs.models import JobEvent, Run
from scheduling.errors import InvalidTransition
from scheduling.lifecycle import HOLDING, TERMINAL, TRAINING, WAITING, Event, State, advance

logger = logging.getLogger(__name__)
#: Moves that are written together.
BATCH = 500
Item = TypeVar("Item")
Done = TypeVar("Done")


@dataclass(frozen=True, slots=True)
class Why:
    """The reason that people see: a reason code and a sentence."""

    token: str
    text: str


def kept_why(run: Run) -> Why:
    """The reason stays: this transition only carries out an earlier decision."""
    return Why(run.reason_token, run.reason_text)


class StaleRun(Exception):
    """Another process moved the run first; the caller's copy of it is out of date."""


#: Expected under concurrency: nothing failed.
CONFLICTS = (IntegrityError, InvalidTransition, StaleRun)


def _accumulate(run: Run, left: State, at: datetime) -> dict[str, float]:
    """Add the time in the previous state, under the headings of the paper's tables (section 5)."""
    elapsed_s = max(0.0, (at - run.state_since).total_seconds())
    if left in WAITING:
        return {"queueing_s": run.queueing_s + elapsed_s}
    if left in TRAINING:
        return {"running_s": run.running_s + elapsed_s}
    return {"launching_s": run.launching_s + elapsed_s}


@dataclass(frozen=True, slots=True)
class Transition:
    """An event for a run. `columns`: further columns of the run to set; without a `why` the text is the reason."""

    run: Run
    event: Event
    text: str
    why: Why | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)
    columns: Mapping[str, Any] = field(default_factory=dict)


def _columns(transition: Transition, at: datetime) -> dict[str, Any]:
    """The new columns of the run's row. Raises InvalidTransition if the table has no such edge."""
    run, event = transition.run, transition.event
    before = State(run.state)
    after = advance(before, event)
    values: dict[str, Any] = {"state": after, "state_since": at} | _accumulate(run, before, at)
    values |= transition.columns
    why = transition.why or Why(event.value, transition.text)
    values |= {"reason_token": why.token, "reason_text": why.text}
    if after in TERMINAL:
        values |= {"ended_at": at, "protected_until": None}
    elif after not in HOLDING:
        values |= {"steps_per_s": None, "protected_until": None}
    return values


def _event(transition: Transition, after: State, at: datetime) -> JobEvent:
    run = transition.run
    return JobEvent(
        kind=transition.event.value,
        text=transition.text,
        at=at,
        job=run.job,
        run=run,
        project_id=run.job.project_id,
        from_state=State(run.state),
        to_state=after,
        detail={**transition.detail, "epoch": run.epoch},
    )


def _take(run: Run, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        setattr(run, name, value)


def move(
    run: Run,
    event: Event,
    *,
    at: datetime,
    text: str,
    why: Why | None = None,
    detail: dict[str, Any] | None = None,
    **columns: Any,
) -> State:
    """Apply `event`: raises InvalidTransition if the table has no such edge, StaleRun if the row has changed.

    `columns` may also be expressions.
    """
    transition = Transition(run, event, text, why, detail or {}, columns)
    values = _columns(transition, at)
    after: State = values["state"]
    with transaction.atomic():
        changed = Run.objects.filter(pk=run.pk, state=run.state, epoch=run.epoch).update(**values)
        if changed != 1:
            raise StaleRun(f"run {run.pk} is no longer {run.state}")
        events.store([_event(transition, after, at)])
    _take(run, values)
    return after


def move_all(transitions: Sequence[Transition], at: datetime) -> None:
    """Like `move`, for different runs, in a few statements. If one of them fails, nothing changes, here or in the
    database."""
    if not transitions:
        return
    values = {one.run.pk: _columns(one, at) for one in transitions}
    with transaction.atomic():
        _lock([one.run for one in transitions])
        for rows in _alike(values):
            update_rows(Run, rows)
        events.store([_event(one, values[one.run.pk]["state"], at) for one in transitions])
    for one in transitions:
        _take(one.run, values[one.run.pk])


def move_possible(transitions: Sequence[Transition], at: datetime, loop: Loop) -> list[Run]:
    """`move_all` for the runs that can move; the others are unchanged."""

    def write(some: Sequence[Transition]) -> list[Run]:
        move_all(some, at)
        return [one.run for one in some]

    def refuse(one: Transition, error: Exception) -> None:
        if isinstance(error, CONFLICTS):
            logger.info("%s: %s", one.text, error, extra=job_log.of_run(one.run))
        else:
            loop.failed(of_run(one.run), error)

    moved = in_batches(loop.due(transitions, lambda one: of_run(one.run)), write, refuse)
    loop.succeeded_all(map(of_run, moved))
    return moved


def in_batches(
    items: Sequence[Item],
    write: Callable[[Sequence[Item]], list[Done]],
    refuse: Callable[[Item, Exception], None],
    size: int = BATCH,
) -> list[Done]:
    """Results of `write` for the items that it could write, in batches, each in a transaction or savepoint. If a batch
    fails, by a conflict (a GPU that is not free yet, a run that moved) or anything else, each half is tried separately,
    so that only the failing item is skipped; `refuse` is called with it."""
    starts = range(0, len(items), size)
    return [done for start in starts for done in _by_halves(items[start : start + size], write, refuse)]


def _by_halves(
    items: Sequence[Item],
    write: Callable[[Sequence[Item]], list[Done]],
    refuse: Callable[[Item, Exception], None],
) -> list[Done]:
    try:
        with transaction.atomic():
            return write(items)
    except Exception as error:
        reraise_unless_item(error)
        if half := len(items) // 2:
            return [*_by_halves(items[:half], write, refuse), *_by_halves(items[half:], write, refuse)]
        refuse(items[0], error)
        return []


def _lock(runs: Iterable[Run]) -> None:
    """In the same order as every other writer, to avoid deadlocks; keys are not changed."""
    known = {run.pk: (run.state, run.epoch) for run in runs}
    rows = Run.objects.select_for_update(no_key=True).filter(pk__in=known).order_by("pk")
    found = {pk: (state, epoch) for pk, state, epoch in rows.values_list("pk", "state", "epoch")}
    for pk, seen in known.items():
        if found.get(pk) != seen:
            raise StaleRun(f"run {pk} is no longer {seen[0]}")


def _alike(values: Mapping[UUID, Mapping[str, Any]]) -> Iterable[dict[UUID, Mapping[str, Any]]]:
    """Grouped by the columns that they set: one statement sets the same columns in all its rows."""
    groups: dict[tuple[str, ...], dict[UUID, Mapping[str, Any]]] = defaultdict(dict)
    for pk, columns in values.items():
        groups[tuple(columns)][pk] = columns
    return groups.values()
