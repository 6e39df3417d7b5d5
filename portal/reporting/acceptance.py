"""Accepts new runs before they queue."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from portal.jobs.loops import Loop, LoopName, of_run
from portal.jobs.models import Run
from portal.lifecycle.transitions import Transition, Why, kept_why, move_possible
from scheduling.domain.reason_codes import ReasonCode
from scheduling.lifecycle import Event, State


def accept_waiting(*, cluster_id: int, problem_of: Callable[[Run], Why | None], now: datetime) -> list[Run]:
    """Have the executor accept new runs; `problem_of(run)` is why it does not yet, or None."""
    new = Run.objects.select_related("job__project").filter(
        job__cluster_id=cluster_id, state=State.WAITING_FOR_INITIAL_CONTACT
    )
    loop = Loop(LoopName.ACCEPT, cluster_id)

    def accepted(run: Run) -> Transition | None:
        if problem := problem_of(run):
            if run.reason_text != problem.text:
                # Unless the run has changed since: it may have been cancelled, or its preparation may have failed.
                still = Run.objects.filter(pk=run.pk, state=run.state)
                still.update(reason_token=problem.token, reason_text=problem.text)
            return None
        text = f"#{run.job.number} {run.job.name} is in the queue"
        why = kept_why(run) if run.reason_token == ReasonCode.RETRY else None
        return Transition(run, Event.ACCEPTED, text, why)

    ready = loop.together(new, of_run, lambda runs: [accepted(run) for run in runs])
    return move_possible([one for one in ready if one is not None], now, loop)
