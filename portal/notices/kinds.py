"""What people can be told of, and which events of jobs say it."""

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

#: Kind -> what a subject says of the job.
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
#: Told to administrators of the cluster alone.
OF_ADMINISTRATORS = frozenset({NODE_LOST, CHECK_FAILED, ROLLED_BACK})
#: Kinds of events that may be worth telling: what the trigger of migration 0003 lets into the outbox.
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
    """None for what nobody needs to be told. `event.job` and `event.run` are as they are now."""
    if event.kind == Event.GPUS_FREE:
        first = event.run is not None and event.run.first_started_at == event.at
        return STARTED if first else None  # not each time that it comes back from the queue
    if event.kind == Event.REALLOCATED:
        return PREEMPTED if _gives_up_gpus(event.detail) else None
    if event.kind == Event.FAIL:
        final = event.job is not None and event.job.run_id == event.run_id
        return FAILED if final else None  # of an attempt that another one follows, `retry` tells
    return _PLAIN.get(event.kind)


def _gives_up_gpus(detail: Mapping[str, Any]) -> bool:
    """To fewer GPUs, or to none. Without a gang it stops for a reason that is told by itself."""
    before, after = detail.get("before"), detail.get("after")
    return before is not None and (after is None or after["count"] < before["count"])


def state_after(event: JobEvent) -> State | None:
    if event.to_state:
        return State(event.to_state)
    return State(event.run.state) if event.run else None
