"""Starts runs, and ends their assignments and occupancy."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any

from django.contrib.postgres.fields import DateTimeRangeField
from django.db.models import DateTimeField, F, Func, Value

from portal.jobs.models import Assignment, Command, Hold, Job, Run
from portal.material import claims
from scheduling.domain.reason_codes import ReasonCode
from scheduling.lifecycle import State


def new_run(job: Job, *, attempt: int, now: datetime, **columns: Any) -> Run:
    return Run(
        job=job,
        attempt=attempt,
        created_at=now,
        state_since=now,
        state=State.WAITING_FOR_INITIAL_CONTACT,
        reason_token=ReasonCode.NEW,
        reason_text="Not considered yet; the next round decides.",
        **columns,
    )


def start_run(job: Job, *, attempt: int, now: datetime, **columns: Any) -> Run:
    """Start a new attempt, as the job's live run."""
    run = new_run(job, attempt=attempt, now=now, **columns)
    run.save(force_insert=True)
    job.run = run
    job.save(update_fields=["run"])
    claims.note_runs(job, [run])
    return run


def ending_at(at: datetime) -> Func:
    """The row's interval, closed at `at`."""
    start = Func(F("during"), function="lower", output_field=DateTimeField())
    return Func(start, Value(at), function="tstzrange", output_field=DateTimeRangeField())


def end_assignments(run: Run, at: datetime) -> None:
    end_assignments_of([run], at)


def end_assignments_of(runs: Collection[Run], at: datetime) -> None:
    """End the planned assignments of the runs. An assignment that never began to count is removed."""
    open_ones = Assignment.objects.filter(run__in=runs, during__upper_inf=True)
    open_ones.filter(during__startswith__gte=at).delete()
    open_ones.update(during=ending_at(at))


def end_processes(run: Run, at: datetime) -> None:
    end_processes_of([run], at)


def end_processes_of(runs: Collection[Run], at: datetime) -> None:
    """Request a kill of all processes of the runs; their occupancy ends when the processes are gone."""
    launches = Hold.objects.filter(run__in=runs, during__upper_inf=True).values_list("run_id", "epoch").distinct()
    commands = [Command(run_id=run, epoch=epoch, verb=Command.Verb.KILL, next_attempt_at=at) for run, epoch in launches]
    Command.objects.bulk_create(commands, ignore_conflicts=True)  # some kills may have been requested before
