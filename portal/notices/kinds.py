"""Kinds of notices, and the events of jobs that cause them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from portal.jobs.models import JobEvent
from scheduling.lifecycle import Event, State

STARTED, SUCCEEDED, FAILED = "job.started", "job.succeeded", "job.failed"
CANCELLED, RETRIED, PREEMPTED = "job.cancelled", "job.retried", "job.preempted"
HELD, IDLE, WAITING = "job.held", "job.idle", "job.waiting"
BUDGET, NODE_LOST = "budget.reached", "node.lost"
CHECK_FAILED = "node.check_failed"
ROLLED_BACK = "policy.rolled_back"
TEST = "test"

#: Kind -> the subject's words about the job.
WORDS: Mapping[str, str] = MappingProxyType(
    {
        STARTED: "started",
        SUCCEEDED: "succeeded",
        FAILED: "failed",
        CANCELLED: "cancelled",
        RETRIED: "failed and is tried again",
        PREEMPTED: "gave up GPUs",
        HELD: "on hold",
        IDLE: "idle",
        WAITING: "waiting",
        BUDGET: "budget",
        NODE_LOST: "node lost",
        CHECK_FAILED: "node failed its check",
        ROLLED_BACK: "policy rolled back",
    }
)
KINDS = tuple(WORDS)
#: Only for administrators of the cluster.
OF_ADMINISTRATORS = frozenset({NODE_LOST, CHECK_FAILED, ROLLED_BACK})
#: Kinds of events that may cause a notice: those that the trigger of migration 0003 puts into the outbox.
TELLING = (
    Event.GPUS_FREE.value,
    Event.REALLOCATED.value,
    Event.STEPS_DONE.value,
    Event.FAIL.value,
    Event.CANCEL.value,
    "retry",
    "held",
    "idle",
    "budget",
    "node_lost",
    "node_check_failed",
    "policy_rolled_back",
)
_PLAIN = {
    Event.STEPS_DONE.value: SUCCEEDED,
    Event.CANCEL.value: CANCELLED,
    "retry": RETRIED,
    "held": HELD,
    "idle": IDLE,
    "budget": BUDGET,
    "node_lost": NODE_LOST,
    "node_check_failed": CHECK_FAILED,
    "policy_rolled_back": ROLLED_BACK,
}


def kind_of(event: JobEvent) -> str | None:
    """None for events without a notice. `event.job` and `event.run` have their present state."""
    if event.kind == Event.GPUS_FREE:
        first = event.run is not None and event.run.first_started_at == event.at
        return STARTED if first else None  # not each time that it returns from the queue
    if event.kind == Event.REALLOCATED:
        return PREEMPTED if _gives_up_gpus(event.detail) else None
    if event.kind == Event.FAIL:
        final = event.job is not None and event.job.run_id == event.run_id
        return FAILED if final else None  # an attempt that is followed by another one is covered by `retry`
    return _PLAIN.get(event.kind)


def _gives_up_gpus(detail: Mapping[str, Any]) -> bool:
    """To fewer GPUs, or to none. Without a gang it stops for a reason that has its own notice."""
    before, after = detail.get("before"), detail.get("after")
    return before is not None and (after is None or after["count"] < before["count"])


def state_after(event: JobEvent) -> State | None:
    if event.to_state:
        return State(event.to_state)
    return State(event.run.state) if event.run else None
