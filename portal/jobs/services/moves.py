"""The one writer of run states: guarded update and event, in one transaction."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import transaction

from portal.jobs import events
from portal.jobs.models import Run
from scheduling.lifecycle import HOLDING, TERMINAL, TRAINING, WAITING, Event, State, advance


@dataclass(frozen=True, slots=True)
class Why:
    """What people read as the job's why: a machine token and a sentence."""

    token: str
    text: str


def kept_why(run: Run) -> Why:
    """The why stays what it was: this move only carries out what was decided before."""
    return Why(run.reason_token, run.reason_text)


class StaleRun(Exception):
    """Somebody else moved the run first; the caller's view of it is out of date."""


def _accumulate(run: Run, left: State, at: datetime) -> dict[str, float]:
    """Time in the state just left, under the heading of the paper's tables (section 5)."""
    elapsed_s = max(0.0, (at - run.state_since).total_seconds())
    if left in WAITING:
        return {"queueing_s": run.queueing_s + elapsed_s}
    if left in TRAINING:
        return {"running_s": run.running_s + elapsed_s}
    return {"launching_s": run.launching_s + elapsed_s}


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
    """Take `event`: raises InvalidTransition where the table has no edge, StaleRun where the row moved on.

    `columns` are further columns of the run to set in the same update. Without a `why` the event's text is it.
    """
    before = State(run.state)
    after = advance(before, event)
    values: dict[str, Any] = {"state": after, "state_since": at} | _accumulate(run, before, at) | columns
    why = why or Why(event.value, text)
    values |= {"reason_token": why.token, "reason_text": why.text}
    if after in TERMINAL:
        values |= {"ended_at": at, "protected_until": None}
    elif after not in HOLDING:
        values |= {"steps_per_s": None, "protected_until": None}
    with transaction.atomic():
        changed = Run.objects.filter(pk=run.pk, state=before, epoch=run.epoch).update(**values)
        if changed != 1:
            raise StaleRun(f"run {run.pk} is no longer {before}")
        for name, value in values.items():
            setattr(run, name, value)
        events.append(
            kind=event.value,
            job=run.job,
            run=run,
            from_state=before,
            to_state=after,
            text=text,
            at=at,
            detail=(detail or {}) | {"epoch": run.epoch},
        )
    return after
