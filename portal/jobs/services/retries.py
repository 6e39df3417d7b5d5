"""Which endings of a run are tried again, how often, and after which wait."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from portal.jobs.models import Job, Run
from portal.jobs.schema import Retry
from scheduling.executors.base import ExitInfo
from scheduling.lifecycle import State

#: How an executor calls an ending -> how a job file does. What is missing is never tried again.
_ENDINGS = {
    "user_error": "user_error",
    "signal": "signal",
    "out_of_memory": "out_of_memory",
    "launch_failed": "launch_failed",
    "data_unavailable": "launch_failed",
    "runner_lost": "node_failure",
}
#: Endings that are not the job's fault do not use up its limit; this bounds them.
INFRASTRUCTURE = frozenset({"node_failure"})
INFRASTRUCTURE_LIMIT = 20
_MAX_BACKOFF_S = 3_600.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether to try again; `text` says why not, where that is worth saying."""

    again: bool
    backoff_s: float = 0.0
    text: str = ""


def judge_retry(job: Job, run: Run, info: ExitInfo) -> Verdict:
    """`run` has just failed with `info` and is stored so."""
    policy = Retry.model_validate(job.spec.get("retry", {}))
    ending = _ENDINGS.get(info.reason)
    if ending is None or not info.retryable:
        return Verdict(False)
    if ending not in policy.on:
        return Verdict(False, text=f"Its retry policy does not try {ending} again.")
    infrastructure = _is_infrastructure(info.reason, info.alleged)
    used = sum(_is_infrastructure(*past) == infrastructure for past in _past(job))
    limit = INFRASTRUCTURE_LIMIT if infrastructure else job.retry_limit
    if used > limit:
        often = "once" if limit == 1 else f"{limit} times"
        return Verdict(False, text=f"It was tried again {often}." if limit else "")
    return Verdict(True, min(_MAX_BACKOFF_S, policy.backoff_s * 2 ** max(0, min(used, 30) - 1)))


def _is_infrastructure(reason: Any, alleged: Any) -> bool:
    """Not where the job itself may have brought it about."""
    return _ENDINGS.get(reason) in INFRASTRUCTURE and not alleged


def _past(job: Job) -> list[tuple[Any, Any]]:
    failed = Run.objects.filter(job=job, state=State.FAILED, exit__isnull=False)
    return list(failed.values_list("exit__reason", "exit__alleged"))
