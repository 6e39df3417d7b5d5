"""Which failures of a run are retried, how often, and after what delay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.utils import timezone

from accounts.models import User
from portal.core import wake
from portal.jobfile.schema import Retry
from portal.jobs.models import Job, Run
from portal.lifecycle.allocations import end_assignments
from portal.lifecycle.cancel import JobHasEnded
from portal.lifecycle.locking import JobConflict, audit_for_others, lock_job_and_run
from portal.lifecycle.transitions import Why, move
from scheduling.domain.reason_codes import ReasonCode
from scheduling.executors.base import ExitInfo
from scheduling.lifecycle import LIVE, Event, State

#: An executor's reason for an ending -> the job file's. Endings that are missing are never retried.
_ENDINGS = {
    "user_error": "user_error",
    "signal": "signal",
    "out_of_memory": "out_of_memory",
    "launch_failed": "launch_failed",
    "data_unavailable": "launch_failed",
    "runner_lost": "node_failure",
}
#: Endings that are not the job's fault do not count against its limit; this number bounds them.
INFRASTRUCTURE = frozenset({"node_failure"})
INFRASTRUCTURE_LIMIT = 20
_MAX_BACKOFF_S = 3_600.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether to retry; `text` says why not, if that is worth stating. `of`: how many attempts there may be; None: this
    one does not count."""

    again: bool
    backoff_s: float = 0.0
    text: str = ""
    of: int | None = None


def judge_retry(job: Job, run: Run, info: ExitInfo) -> Verdict:
    """`run` has just failed with `info`, which is stored."""
    policy = Retry.model_validate(job.spec.get("retry", {}))
    ending = _ENDINGS.get(info.reason)
    if ending is None or not info.retryable:
        return Verdict(False)
    if ending not in policy.on:
        named = policy.on != Retry().on
        return Verdict(False, text=f"It is not tried again: retry.on does not name {ending}." if named else "")
    infrastructure = _is_infrastructure(info.reason, info.alleged)
    used = sum(_is_infrastructure(*past) == infrastructure for past in _past(job))
    limit = INFRASTRUCTURE_LIMIT if infrastructure else job.retry_limit
    if used > limit:
        often = "once" if limit == 1 else f"{limit} times"
        return Verdict(False, text=f"It was tried again {often}." if limit else "")
    backoff_s = min(_MAX_BACKOFF_S, policy.backoff_s * 2 ** max(0, min(used, 30) - 1))
    return Verdict(True, backoff_s, of=None if infrastructure else run.attempt + 1 + limit - used)


def in_short(info: ExitInfo) -> str:
    """How the attempt ended, before "tried again in"."""
    match info.reason:
        case "user_error":
            return f"Failed with code {info.exit_code}"
        case "signal":
            return f"Ended by signal {info.signal}"
        case "out_of_memory":
            return "Ran out of memory"
        case "launch_failed":
            return "Could not be started"
        case "data_unavailable":
            return "Its data could not be had"
        case _:
            return "Its node or runner was lost"


def stop_retrying(*, actor: User, job: Job) -> Job:
    """End a job that waits for its next attempt as failed, as if no attempt were left. Raises JobHasEnded, and
    JobConflict if it waits for none."""
    now = timezone.now()
    with transaction.atomic():
        job, run = lock_job_and_run(job.pk)
        if State(run.state) not in LIVE:
            raise JobHasEnded(job)
        if not run.awaits_retry:
            message = f"#{job.number} is not waiting to be tried again. Cancel it to end it now."
            raise JobConflict.of("job", message, "no_retry")
        last = Run.objects.filter(job=job, state=State.FAILED).order_by("-attempt").first()
        text = f"{run.retry_why}; {actor} stopped the retries."
        why = Why(last.reason_token if last else ReasonCode.FAIL, text)
        end_assignments(run, now)
        move(
            run,
            Event.FAIL,
            at=now,
            text=f"#{job.number} {job.name} failed: {text}",
            why=why,
            exit=last.exit if last else None,
        )
        audit_for_others(actor, job, "job.stop_retrying")
        transaction.on_commit(wake.schedule_round)
    return job


def _is_infrastructure(reason: Any, alleged: Any) -> bool:
    """False if the job itself may have caused it."""
    return _ENDINGS.get(reason) in INFRASTRUCTURE and not alleged


def _past(job: Job) -> list[tuple[Any, Any]]:
    failed = Run.objects.filter(job=job, state=State.FAILED, exit__isnull=False)
    return list(failed.values_list("exit__reason", "exit__alleged"))
