"""Hold and release: a job on hold is not scheduled; a running one writes a checkpoint and releases its GPUs first."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from django.db import transaction
from django.utils import timezone

from accounts.models import User
from accounts.pricing import PRODUCTS_PER_UNIT
from portal.accounting.running_cost import cost_facts, so_far_products
from portal.core import wake
from portal.jobs import events
from portal.jobs.models import Command, HoldKind, Job, Run
from portal.lifecycle.allocations import end_assignments
from portal.lifecycle.cancel import JobHasEnded
from portal.lifecycle.locking import JobConflict, audit_for_others, lock_job_and_run
from portal.lifecycle.transitions import Why, move
from scheduling.domain.reason_codes import ReasonCode
from scheduling.lifecycle import HOLDING, LIVE, Event, State

_LEAVING = (State.CHECKPOINTING, State.STOPPING)


def hold_job(*, actor: User, job: Job) -> Job:
    """Keep the job from running until it is released. Idempotent; raises JobHasEnded and JobConflict.

    Only administrators may release an administrator's hold on another user's job.
    """
    now = timezone.now()
    kind = HoldKind.ADMIN if actor.is_superuser and job.owner_id != actor.pk else HoldKind.USER
    with transaction.atomic():
        job, run = lock_job_and_run(job.pk)
        if State(run.state) not in LIVE:
            raise JobHasEnded(job)
        if job.hold_kind and not (kind is HoldKind.ADMIN and job.hold_kind != HoldKind.ADMIN):
            return job
        if kind is HoldKind.USER and State(run.state) in HOLDING and not job.can_restart(run):
            raise JobConflict.of("job", _would_lose_all(job), "not_restartable")
        who = f"administrator {actor}" if kind is HoldKind.ADMIN else str(actor)
        place_hold(job, run, kind=kind, actor=actor, text=f"Held by {who} since {now:%Y-%m-%d %H:%M} UTC.", now=now)
        audit_for_others(actor, job, "job.hold", {"kind": kind.value})
    return job


def _would_lose_all(job: Job) -> str:
    begins = f"held, #{job.number} would start from the beginning when it is released"
    if job.restartable is False:
        return (
            f"Its job file says restartable: false: {begins}. Set restartable to true, cancel it, or wait for its end."
        )
    return (
        f"Its program does not use the SDK: {begins}. If it saves its files on SIGTERM and finds them again, set "
        "restartable to true and hold it then; otherwise cancel it, or wait for its end."
    )


def hold_first(job: Job, run: Run, words: str) -> str:
    """`words` if a hold would help and is allowed."""
    return (
        words
        if job.can_restart(run)
        else "its program would start from the beginning after a hold, so wait for its end or cancel it"
    )


def place_hold(job: Job, run: Run, *, kind: HoldKind, actor: User | None, text: str, now: datetime) -> None:
    """The caller has locked both rows, and the run is live."""
    job.hold_kind, job.held_by, job.held_at, job.hold_text = kind, actor, now, text[:300]
    job.save(update_fields=["hold_kind", "held_by", "held_at", "hold_text"])
    events.append(
        kind="held", job=job, run=run, at=now, text=f"#{job.number} {job.name}: {text}", detail={"kind": kind}
    )
    _release_gpus(run, Why(ReasonCode.ON_HOLD, text), now)
    transaction.on_commit(wake.schedule_round)


def _release_gpus(run: Run, why: Why, now: datetime) -> None:
    """End the run's plan; a running launch stops with a checkpoint."""
    state, name = State(run.state), f"#{run.job.number} {run.job.name}"
    end_assignments(run, now)
    if state is State.STANDBY:
        move(run, Event.UNASSIGNED, at=now, text=f"{name} gives back the GPUs it was to start on", why=why)
    elif state in HOLDING and state not in _LEAVING:
        move(run, Event.REALLOCATED, at=now, text=f"{name} writes a checkpoint and stops", why=why)
        Command.objects.get_or_create(
            run=run, epoch=run.epoch, verb=Command.Verb.CHECKPOINT_AND_STOP, defaults={"next_attempt_at": now}
        )
    else:
        run.reason_token, run.reason_text, run.reason_detail = why.token, why.text, {}
        run.save(update_fields=["reason_token", "reason_text", "reason_detail"])


def release_job(*, actor: User, job: Job) -> Job:
    """Let a job on hold queue again. Idempotent; raises JobHasEnded, PermissionError and JobConflict."""
    now = timezone.now()
    with transaction.atomic():
        job, run = lock_job_and_run(job.pk)
        if State(run.state) not in LIVE:
            raise JobHasEnded(job)
        if not job.hold_kind:
            return job
        if job.hold_kind == HoldKind.ADMIN and not actor.is_superuser:
            raise PermissionError(f"{job.hold_text} Only administrators release it.")
        if job.hold_kind == HoldKind.COST and has_cost_its_limit(job, now):
            raise JobConflict.of("max_cost", job.hold_text, "max_cost_reached")
        kind = job.hold_kind
        lift_hold(job, run, text=f"Released by {actor}; the next round considers it.", now=now)
        audit_for_others(actor, job, "job.release", {"kind": kind})
    return job


def lift_hold(job: Job, run: Run, *, text: str, now: datetime) -> None:
    """The caller has locked both rows, and the run is live."""
    if job.held_at is not None:
        job.eligible_at = (job.eligible_at or job.submitted_at) + (now - job.held_at)
    job.hold_kind, job.held_by, job.held_at, job.hold_text = "", None, None, ""
    job.save(update_fields=["hold_kind", "held_by", "held_at", "hold_text", "eligible_at"])
    run.reason_token, run.reason_text, run.reason_detail = ReasonCode.NEW, text, {}
    run.save(update_fields=["reason_token", "reason_text", "reason_detail"])
    events.append(kind="released", job=job, run=run, at=now, text=f"#{job.number} {job.name}: {text}")
    transaction.on_commit(wake.schedule_round)


def has_cost_its_limit(job: Job, now: datetime) -> bool:
    limit = job.spec.get("max_cost")
    return limit is not None and so_far_products(job, cost_facts([job], now)) >= Decimal(str(limit)) * PRODUCTS_PER_UNIT
