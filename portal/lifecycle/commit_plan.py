"""Applies the moves of a plan that are still current, atomically, guarded by the cluster's round_epoch."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import F
from django.utils import timezone
from psycopg2.extras import DateTimeTZRange

from portal.core import job_log
from portal.core.times import moment
from portal.database.rows import update_rows
from portal.jobfile.gpu_text import gang_words
from portal.jobfile.resources import WHOLE_PERCENT
from portal.jobs import events
from portal.jobs.loops import LEFT_OUT, Item, Loop, LoopName, of_job, step, task_of
from portal.jobs.models import Assignment, Cluster, Command, FailingItem, Hold, Job, Run
from portal.lifecycle.allocations import end_assignments_of, end_processes_of
from portal.lifecycle.displacement import record_preemptors
from portal.lifecycle.transitions import BATCH, CONFLICTS, Transition, Why, in_batches, move_all
from portal.snapshot.run_version import RunVersion
from scheduling.domain import Gang, Move, Plan
from scheduling.domain.reason_codes import LEFT_NODE, ReasonCode
from scheduling.lifecycle import QUEUED, Event, State

logger = logging.getLogger(__name__)


class StaleRound(Exception):
    """Another round was committed since the snapshot was taken; nothing of this plan was applied."""


def commit_plan(
    *, cluster_id: int, round_epoch: int, plan: Plan, seen: Mapping[str, RunVersion], now: datetime
) -> list[Move]:
    """Apply `plan` if `round_epoch` is still the cluster's; returns the applied moves.

    `seen` maps job ids to the run, state and epoch of the snapshot: a job that has changed since keeps its GPUs.
    """
    with transaction.atomic():
        changed = Cluster.objects.filter(pk=cluster_id, round_epoch=round_epoch).update(
            round_epoch=F("round_epoch") + 1, last_round_at=now, policy_memory=dict(plan.memory), last_error=""
        )
        if changed != 1:
            raise StaleRound(f"round {round_epoch} was overtaken")
        # Jobs that release GPUs come first, so that their assignments have ended when other jobs take them.
        ordered = sorted(plan.moves, key=lambda m: (m.before is None, m.kind == "start"))
        taken = _end_released(ordered, seen, now)
        current = [m for m in ordered if m.job_id in taken]
        applied = _apply(cluster_id, current, taken, now)
        steps = Loop(LoopName.ROUND, cluster_id, postpones=False)
        steps.run(step("note preemptions", cluster_id), record_preemptors, cluster_id, applied, taken, now)
        steps.run(
            step("store reasons", cluster_id), _store_reasons, cluster_id, plan, seen, {m.job_id for m in applied}
        )
    return applied


def _end_released(moves: list[Move], seen: Mapping[str, RunVersion], now: datetime) -> dict[str, Run]:
    """Lock the runs that move, end their present assignments, and return the runs that are still current."""
    runs = Run.objects.select_for_update(of=("self",)).select_related("job").order_by("pk")
    locked = list(runs.filter(pk__in=[seen[m.job_id].run_id for m in moves]))
    # Read after the locks were granted: a job put on hold or moved to another project meanwhile is not current.
    jobs = dict(Job.objects.filter(run__in=locked, hold_kind="").values_list("pk", "project_id"))
    taken = {
        str(run.job_id): run
        for run in locked
        if run.job_id in jobs
        and seen[str(run.job_id)] == RunVersion(run.pk, State(run.state), run.epoch, jobs[run.job_id])
    }
    end_assignments_of([taken[m.job_id] for m in moves if m.job_id in taken and m.before is not None], now)
    return taken


def _apply(cluster_id: int, moves: Sequence[Move], taken: Mapping[str, Run], now: datetime) -> list[Move]:
    """Returns the applied moves."""
    loop = Loop(LoopName.MOVES, cluster_id)

    def write(some: Sequence[Move]) -> list[Move]:
        _write(some, taken, now)
        return list(some)

    def refuse(m: Move, error: Exception) -> None:
        run = taken[m.job_id]
        if isinstance(error, CONFLICTS):
            logger.info("move of run %s not applied: %s", run.pk, error, extra=job_log.of_run(run))
        else:
            loop.failed(of_job(run.job), error)
        if m.before is not None:
            _restore_assignments(run, now)

    applied = in_batches(moves, write, refuse, BATCH)
    loop.succeeded_all(of_job(taken[m.job_id].job) for m in applied)
    return applied


def _write(moves: Sequence[Move], taken: Mapping[str, Run], now: datetime) -> None:
    """The run objects change last, when nothing can fail any more."""
    _assign([(taken[m.job_id], gpu) for m in moves if not _cancels(m) for gpu in m.gpu_ids], now)
    transitions = [t for m in moves if (t := _transition(taken[m.job_id], m))]
    stop = partial(Command, verb=Command.Verb.CHECKPOINT_AND_STOP, next_attempt_at=now)
    stops = [stop(run=t.run, epoch=t.run.epoch) for t in transitions if t.event is Event.REALLOCATED]
    Command.objects.bulk_create(stops, ignore_conflicts=True)
    end_processes_of([t.run for t in transitions if t.event is Event.CANCEL], now)
    move_all(transitions, now)


def _restore_assignments(run: Run, now: datetime) -> None:
    """The run continues where it is: restore its assignments from its occupancy."""
    held = Hold.objects.filter(run=run, during__upper_inf=True)
    _assign([(run, gpu) for gpu in held.values_list("accelerator_id", flat=True)], now, later=0)


def _assign(pairs: Iterable[tuple[Run, int]], now: datetime, *, later: int = 1) -> None:
    """Assign GPUs to runs, for the given launch after their present one."""
    during = DateTimeTZRange(now, None)
    Assignment.objects.bulk_create(
        Assignment(run=run, accelerator_id=gpu, epoch=run.epoch + later, during=during, **gpus_taken(run.job))
        for run, gpu in pairs
    )


def gpus_taken(job: Job) -> dict[str, int]:
    """The fraction of each GPU that the run takes; a whole GPU includes its memory."""
    share = job.gpu_share_percent
    return {"share_percent": share, "memory_mib": job.gpu_memory_mib if share < WHOLE_PERCENT else 0}


def describe(job: Job, gang: Gang | None) -> str:
    return gang_words(gang.count, gang.type, job.gpu_share_percent) if gang else "no GPUs"


def _cancels(m: Move) -> bool:
    """Victims that are cancelled; their assignments have been ended."""
    return m.kind == "preempt" and m.reason.detail.get("mode") == "cancel"


def _transition(run: Run, m: Move) -> Transition | None:
    """None: nothing was started yet, and only the plan changes."""
    name, columns = f"#{run.job.number} {run.job.name}", {}
    if m.kind == "start":
        event, text = Event.ASSIGNED, f"{name} gets {describe(run.job, m.gang)}"
    elif _cancels(m):
        event, text = Event.CANCEL, f"{name} cancelled: {m.reason.text}"
    else:
        text = f"{name} gives up {describe(run.job, m.before)}"
        if m.gpu_ids:
            text = f"{name} goes from {describe(run.job, m.before)} to {describe(run.job, m.gang)}"
        if m.reason.token in LEFT_NODE:  # an eviction is not a decision of the policy
            text = f"{text}: {m.reason.text[:1].lower()}{m.reason.text[1:]}"
        if State(run.state) is not State.STANDBY:
            event, columns = Event.REALLOCATED, {"rescales": run.rescales + int(bool(m.gpu_ids))}
        elif m.gpu_ids:
            return None
        else:
            event = Event.UNASSIGNED
    return Transition(run, event, text, Why(m.reason.token, m.reason.text), _detail(m), columns)


def _detail(m: Move) -> dict[str, Any]:
    def gang(g: Gang | None) -> dict[str, Any] | None:
        return {"type": g.type, "count": g.count} if g else None

    return {"before": gang(m.before), "after": gang(m.gang), "kind": m.kind} | dict(m.reason.detail)


def _store_reasons(cluster_id: int, plan: Plan, seen: Mapping[str, RunVersion], moved: set[str]) -> None:
    """Store the policy's reasons for jobs that it did not move, if they changed: only those rows are locked."""
    loop = Loop(LoopName.REASONS, cluster_id)
    still = [seen[job_id].run_id for job_id in plan.reasons if job_id not in moved and job_id in seen]
    runs = Run.objects.filter(pk__in=still, state__in=[*QUEUED, State.RUNNING]).order_by("pk")
    columns = ("pk", "job_id", "job__hold_text", "reason_token", "reason_text", "reason_detail")

    def compare(rows: Sequence[tuple[Any, ...]]) -> list[tuple[UUID, dict[str, Any]]]:
        found = []
        for pk, job_id, hold_text, *old in rows:
            reason = plan.reasons[str(job_id)]
            # the person who put the job on hold
            text = hold_text or reason.text if reason.token == ReasonCode.ON_HOLD else reason.text
            if old != [reason.token, text, dict(reason.detail)]:
                new = {"reason_token": reason.token, "reason_text": text, "reason_detail": dict(reason.detail)}
                found.append((pk, new))
        return found

    news = dict(loop.together(runs.values_list(*columns), _of_row, compare))
    # A run that ended meanwhile keeps the reason of its end.
    changed = runs.select_for_update().filter(pk__in=news).values_list("pk", flat=True) if news else []
    update_rows(Run, {pk: news[pk] for pk in changed})


def _of_row(row: tuple[Any, ...]) -> Item:
    return Item(str(row[1]), f"job {row[1]}", row[1], {"job_id": str(row[1])})


def note_skipped(cluster_id: int, seen: Mapping[str, RunVersion]) -> None:
    """Store a reason for jobs that are missing from the snapshot."""
    failing = FailingItem.objects.filter(loop__in=LEFT_OUT, cluster=cluster_id, next_attempt_at__gt=timezone.now())
    for row in failing.exclude(key__in=seen):
        text = (
            f"The portal failed to {task_of(row.loop)}, so the job is left out of scheduling rounds for now: "
            f"{row.error}. It is tried again at {row.next_attempt_at:%H:%M:%S} UTC; administrators see more on the "
            "Cluster page."
        )
        mine = Run.objects.filter(job=row.job_id, job__run=F("pk"), state__in=[*QUEUED, State.RUNNING])
        mine.exclude(reason_text=text).update(reason_token=ReasonCode.LEFT_OUT, reason_text=text, reason_detail={})


def note_round(*, cluster: Cluster, plan: Plan, applied: list[Move], seconds: float, now: datetime) -> None:
    """Store what the round found out about the cluster, and an event if it moved something."""
    figures = dict(plan.figures) | ({"rejected": plan.rejected} if plan.rejected else {})
    next_wake = moment(plan.next_wake_at, now)
    counted = {"last_round_s": seconds, "rounds": F("rounds") + 1, "rounds_s": F("rounds_s") + seconds}
    Cluster.objects.filter(pk=cluster.pk).update(figures=figures, next_wake_at=next_wake, **counted)
    if applied:
        number = cluster.round_epoch + 1
        jobs = "one job moves" if len(applied) == 1 else f"{len(applied)} jobs move"
        text = f"Round {number:,}: {jobs}, decided in {seconds * 1000:.0f} ms"
        events.append(kind="round", text=text, at=now, detail={"round": number, "seconds": seconds})
