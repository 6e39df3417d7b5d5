"""Apply a plan: the moves that are still current, each as a whole, guarded by the cluster's round_epoch."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import Exists, F, OuterRef, Q
from psycopg2.extras import DateTimeTZRange

from portal import logs
from portal.jobs import events
from portal.jobs.gang_words import gang_words
from portal.jobs.models import Accelerator, Assignment, Cluster, Command, Hold, Job, Run
from portal.jobs.posix import moment
from portal.jobs.schema import WHOLE_PERCENT
from portal.jobs.services.displacing import note_displacements
from portal.jobs.services.moves import StaleRun, Why, kept_why, move
from portal.jobs.services.submission import end_assignments, end_processes
from scheduling.domain import Gang, Move, Plan
from scheduling.errors import InvalidTransition
from scheduling.lifecycle import QUEUED, Event, State

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Seen:
    """A job's live run as the snapshot had it."""

    run_id: UUID
    state: State
    epoch: int
    project_id: int


class StaleRound(Exception):
    """Another round was committed since the snapshot was taken; nothing of this plan was applied."""


def commit_plan(
    *, cluster_id: int, round_epoch: int, plan: Plan, seen: Mapping[str, Seen], now: datetime
) -> list[Move]:
    """Apply `plan` if `round_epoch` is still the cluster's; the moves that were applied.

    `seen` maps job ids to the run, state and epoch of the snapshot: a job that has changed since keeps
    what it has.
    """
    with transaction.atomic():
        changed = Cluster.objects.filter(pk=cluster_id, round_epoch=round_epoch).update(
            round_epoch=F("round_epoch") + 1, last_round_at=now, policy_memory=dict(plan.memory), last_error=""
        )
        if changed != 1:
            raise StaleRound(f"round {round_epoch} was overtaken")
        # Whoever gives GPUs up goes first, so that their assignments have ended when others take them.
        ordered = sorted(plan.moves, key=lambda m: (m.before is None, m.kind == "start"))
        taken = _end_given_up(ordered, seen, now)
        applied = [m for m in ordered if m.job_id in taken and _apply(taken[m.job_id], m, now)]
        note_displacements(cluster_id, applied, taken, now)
        _store_reasons(plan, seen, {m.job_id for m in applied})
    return applied


def _end_given_up(moves: list[Move], seen: Mapping[str, Seen], now: datetime) -> dict[str, Run]:
    """Lock the runs that move, end their present assignments, and return those that are still current."""
    runs = Run.objects.select_for_update(of=("self",)).select_related("job").order_by("pk")
    locked = list(runs.filter(pk__in=[seen[m.job_id].run_id for m in moves]))
    # Read after the locks were granted: a job held or moved to another project meanwhile is not current.
    jobs = dict(Job.objects.filter(run__in=locked, hold_kind="").values_list("pk", "project_id"))
    taken = {
        str(run.job_id): run
        for run in locked
        if run.job_id in jobs and seen[str(run.job_id)] == Seen(run.pk, State(run.state), run.epoch, jobs[run.job_id])
    }
    for m in moves:
        if m.job_id in taken and m.before is not None:
            end_assignments(taken[m.job_id], now)
    return taken


def _apply(run: Run, plan_move: Move, now: datetime) -> bool:
    """One move in a savepoint: a conflict (a GPU that is still somebody's) leaves the run as it was."""
    try:
        with transaction.atomic():
            if plan_move.kind == "start":
                _start(run, plan_move, now)
            elif plan_move.kind == "preempt" and plan_move.reason.detail.get("mode") == "cancel":
                _cancel(run, plan_move, now)
            else:
                _reallocate(run, plan_move, now)
    except (IntegrityError, InvalidTransition, StaleRun) as error:
        logger.info("move of run %s not applied: %s", run.pk, error, extra=logs.of_run(run))
        if plan_move.before is not None:
            _restore_assignments(run, now)
        return False
    return True


def _restore_assignments(run: Run, now: datetime) -> None:
    """The run goes on where it is: its holds say where that is."""
    held = Hold.objects.filter(run=run, during__upper_inf=True)
    _assign(run, list(held.values_list("accelerator_id", flat=True)), run.epoch, now)


def _assign(run: Run, gpu_ids: Iterable[int], epoch: int, now: datetime) -> None:
    during = DateTimeTZRange(now, None)
    Assignment.objects.bulk_create(
        [Assignment(run=run, accelerator_id=gpu, epoch=epoch, during=during, **_taken(run.job)) for gpu in gpu_ids]
    )


def _taken(job: Job) -> dict[str, int]:
    """Of each GPU; who has all of it has its memory without asking."""
    share = job.gpu_share_percent
    return {"share_percent": share, "memory_mib": job.gpu_memory_mib if share < WHOLE_PERCENT else 0}


def describe(job: Job, gang: Gang | None) -> str:
    return gang_words(gang.count, gang.type, job.gpu_share_percent) if gang else "no GPUs"


def _start(run: Run, m: Move, now: datetime) -> None:
    _assign(run, m.gpu_ids, run.epoch + 1, now)
    text = f"#{run.job.number} {run.job.name} gets {describe(run.job, m.gang)}"
    move(run, Event.ASSIGNED, at=now, text=text, why=Why(m.reason.token, m.reason.text), detail=_detail(m))


def _reallocate(run: Run, m: Move, now: datetime) -> None:
    detail = _detail(m)
    if m.gpu_ids:
        _assign(run, m.gpu_ids, run.epoch + 1, now)
        text = (
            f"#{run.job.number} {run.job.name} goes from {describe(run.job, m.before)} to {describe(run.job, m.gang)}"
        )
    else:
        text = f"#{run.job.number} {run.job.name} gives up {describe(run.job, m.before)}"
    why = Why(m.reason.token, m.reason.text)
    if State(run.state) is State.STANDBY:
        # Nothing was started yet: only the plan changes.
        if not m.gpu_ids:
            move(run, Event.UNASSIGNED, at=now, text=text, why=why, detail=detail)
        return
    move(
        run, Event.REALLOCATED, at=now, text=text, why=why, detail=detail, rescales=F("rescales") + int(bool(m.gpu_ids))
    )
    run.refresh_from_db(fields=["rescales"])
    Command.objects.get_or_create(
        run=run, epoch=run.epoch, verb=Command.Verb.CHECKPOINT_AND_STOP, defaults={"next_attempt_at": now}
    )


def _cancel(run: Run, m: Move, now: datetime) -> None:
    """Put out for good; its assignments have been ended."""
    text = f"#{run.job.number} {run.job.name} cancelled: {m.reason.text}"
    move(run, Event.CANCEL, at=now, text=text, why=Why(m.reason.token, m.reason.text), detail=_detail(m))
    end_processes(run, now)


def _detail(m: Move) -> dict[str, Any]:
    def gang(g: Gang | None) -> dict[str, Any] | None:
        return {"type": g.type, "count": g.count} if g else None

    return {"before": gang(m.before), "after": gang(m.gang), "kind": m.kind} | dict(m.reason.detail)


def _store_reasons(plan: Plan, seen: Mapping[str, Seen], moved: set[str]) -> None:
    """What the policy says about jobs it did not move, where that has changed: those few are locked, not all."""
    still = [seen[job_id].run_id for job_id in plan.reasons if job_id not in moved and job_id in seen]
    runs = Run.objects.filter(pk__in=still, state__in=[*QUEUED, State.RUNNING]).order_by("pk")
    columns = ("pk", "job_id", "job__hold_text", "reason_token", "reason_text", "reason_detail")
    news = {}
    for pk, job_id, hold_text, *old in runs.values_list(*columns):
        reason = plan.reasons[str(job_id)]
        text = hold_text or reason.text if reason.token == "HELD" else reason.text  # who holds it
        if old != [reason.token, text, dict(reason.detail)]:
            news[pk] = (reason.token, text, dict(reason.detail))
    # A run that ended meanwhile keeps the reason it ended with.
    changed = list(runs.select_for_update(of=("self",)).filter(pk__in=news)) if news else []
    for run in changed:
        run.reason_token, run.reason_text, run.reason_detail = news[run.pk]
    if changed:
        Run.objects.bulk_update(changed, ["reason_token", "reason_text", "reason_detail"], batch_size=500)


def launch_ready(*, cluster_id: int, now: datetime) -> list[Run]:
    """Start every STANDBY run whose GPUs are all free: holds, epoch and launch command in one transaction."""
    planned = Assignment.objects.filter(run=OuterRef("pk"), during__upper_inf=True)
    gpu = "accelerator__{}".format
    full = Q(**{gpu("free_share_percent__lt"): F("share_percent")})
    full |= Q(**{gpu("memory_mib__gt"): 0, gpu("memory_mib__lt"): F(gpu("held_memory_mib")) + F("memory_mib")})
    blocked = planned.filter(full)
    ready = (
        Run.objects.filter(job__cluster_id=cluster_id, state=State.STANDBY)
        .filter(Exists(planned))
        .exclude(Exists(blocked))
    )
    return [run for run in ready.select_related("job") if _launch(run, now)]


def _launch(run: Run, now: datetime) -> bool:
    gpus = list(
        Accelerator.objects.filter(assignments__run=run, assignments__during__upper_inf=True).select_related("node")
    )
    if not gpus:
        return False  # cancelled since
    gang, during = Gang(gpus[0].node.accelerator_type, len(gpus)), DateTimeTZRange(now, None)
    try:
        with transaction.atomic():
            started = {} if run.first_started_at else {"first_started_at": now}
            move(
                run,
                Event.GPUS_FREE,
                at=now,
                text=f"#{run.job.number} {run.job.name} starts on {describe(run.job, gang)}",
                why=kept_why(run),
                detail={"gpus": [{"node": g.node.name, "index": g.index} for g in gpus]},
                emulated=any(g.node.emulated for g in gpus),
                last_report_seq=-1,
                fetching="",
                ready_at=None,
                pace_missed=False,
                launched_steps=run.job.total_steps,
                **started,
            )
            Run.objects.filter(pk=run.pk).update(epoch=F("epoch") + 1)
            run.epoch += 1
            Hold.objects.bulk_create(
                [Hold(run=run, accelerator=gpu, epoch=run.epoch, during=during, **_taken(run.job)) for gpu in gpus]
            )
            Command.objects.create(run=run, epoch=run.epoch, verb=Command.Verb.LAUNCH, next_attempt_at=now)
    except (IntegrityError, StaleRun) as error:
        logger.info("run %s not launched: %s", run.pk, error, extra=logs.of_run(run))
        return False
    return True


def note_round(*, cluster: Cluster, plan: Plan, applied: list[Move], seconds: float, now: datetime) -> None:
    """What the round says of the cluster; an event where it moved something."""
    figures = dict(plan.figures) | ({"rejected": plan.rejected} if plan.rejected else {})
    next_wake = moment(plan.next_wake_at, now)
    counted = {"last_round_s": seconds, "rounds": F("rounds") + 1, "rounds_s": F("rounds_s") + seconds}
    Cluster.objects.filter(pk=cluster.pk).update(figures=figures, next_wake_at=next_wake, **counted)
    if applied:
        number = cluster.round_epoch + 1
        jobs = "one job moves" if len(applied) == 1 else f"{len(applied)} jobs move"
        text = f"Round {number:,}: {jobs}, decided in {seconds * 1000:.0f} ms"
        events.append(kind="round", text=text, at=now, detail={"round": number, "seconds": seconds})
