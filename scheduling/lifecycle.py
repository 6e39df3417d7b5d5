"""The one transition table of a run: F-scheduling thesis, section 4.4, with the portal's additions.

States and edges are those of the paper; WAITING_FOR_RESOURCE, FAILED and CANCELLED are additions, as are a failure
edge, a cancel edge and a time limit for every state that is not terminal.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from scheduling.errors import InvalidTransition


class State(StrEnum):
    WAITING_FOR_INITIAL_CONTACT = "WAITING_FOR_INITIAL_CONTACT"
    WAITING_FOR_INITIAL_RESOURCE = "WAITING_FOR_INITIAL_RESOURCE"
    WAITING_FOR_RESOURCE = "WAITING_FOR_RESOURCE"
    STANDBY = "STANDBY"
    LAUNCHING = "LAUNCHING"
    RUNNING_PROTECTED = "RUNNING_PROTECTED"
    RUNNING = "RUNNING"
    CHECKPOINTING = "CHECKPOINTING"
    STOPPING = "STOPPING"
    FINISHED = "FINISHED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


class Event(StrEnum):
    ACCEPTED = "ACCEPTED"  # an executor accepted the job
    ASSIGNED = "ASSIGNED"  # a plan gave it GPUs
    UNASSIGNED = "UNASSIGNED"  # its assigned GPUs were withdrawn before it launched (node lost, drained)
    GPUS_FREE = "GPUS_FREE"  # every assigned GPU is free: it may launch
    FIRST_STEP_READY = "FIRST_STEP_READY"  # the first step can run
    PROTECTION_ENDED = "PROTECTION_ENDED"
    REALLOCATED = "REALLOCATED"  # a plan changes its GPUs, or takes them all
    CHECKPOINTED = "CHECKPOINTED"  # rank 0 wrote its checkpoint
    STOPPED_REASSIGNED = "STOPPED_REASSIGNED"  # processes are gone; a new allocation waits
    STOPPED_EMPTY = "STOPPED_EMPTY"  # processes are gone; nothing is assigned: queued again
    STEPS_DONE = "STEPS_DONE"
    FAIL = "FAIL"
    CANCEL = "CANCEL"


WAITING = frozenset({State.WAITING_FOR_INITIAL_CONTACT, State.WAITING_FOR_INITIAL_RESOURCE, State.WAITING_FOR_RESOURCE})
QUEUED = frozenset({State.WAITING_FOR_INITIAL_RESOURCE, State.WAITING_FOR_RESOURCE})
TERMINAL = frozenset({State.FINISHED, State.FAILED, State.CANCELLED})
LIVE = frozenset(State) - TERMINAL
#: The GPUs of these jobs cannot be reassigned, and the jobs get no others.
LOCKED = frozenset({State.STANDBY, State.LAUNCHING, State.RUNNING_PROTECTED, State.CHECKPOINTING, State.STOPPING})
#: A process of the run may exist.
HOLDING = frozenset({State.LAUNCHING, State.RUNNING_PROTECTED, State.RUNNING, State.CHECKPOINTING, State.STOPPING})
TRAINING = frozenset({State.RUNNING_PROTECTED, State.RUNNING})

_EDGES: dict[State, dict[Event, State]] = {
    State.WAITING_FOR_INITIAL_CONTACT: {Event.ACCEPTED: State.WAITING_FOR_INITIAL_RESOURCE},
    State.WAITING_FOR_INITIAL_RESOURCE: {Event.ASSIGNED: State.STANDBY},
    State.WAITING_FOR_RESOURCE: {Event.ASSIGNED: State.STANDBY},
    State.STANDBY: {Event.GPUS_FREE: State.LAUNCHING, Event.UNASSIGNED: State.WAITING_FOR_RESOURCE},
    State.LAUNCHING: {
        Event.FIRST_STEP_READY: State.RUNNING_PROTECTED,
        # a run that resumes at its last step has nothing left to do
        Event.STEPS_DONE: State.FINISHED,
        # An eviction (drained or lost node, administrator) must not wait for a launch.
        Event.REALLOCATED: State.CHECKPOINTING,
    },
    State.RUNNING_PROTECTED: {
        Event.PROTECTION_ENDED: State.RUNNING,
        Event.STEPS_DONE: State.FINISHED,
        Event.REALLOCATED: State.CHECKPOINTING,
    },
    State.RUNNING: {Event.REALLOCATED: State.CHECKPOINTING, Event.STEPS_DONE: State.FINISHED},
    State.CHECKPOINTING: {Event.CHECKPOINTED: State.STOPPING, Event.STEPS_DONE: State.FINISHED},
    State.STOPPING: {
        Event.STOPPED_REASSIGNED: State.STANDBY,
        Event.STOPPED_EMPTY: State.WAITING_FOR_RESOURCE,
        Event.STEPS_DONE: State.FINISHED,
    },
}

TRANSITIONS: Mapping[tuple[State, Event], State] = MappingProxyType(
    {(state, event): to for state, edges in _EDGES.items() for event, to in edges.items()}
    | {(state, Event.FAIL): State.FAILED for state in LIVE}
    | {(state, Event.CANCEL): State.CANCELLED for state in LIVE}
)

#: How long a run may stay in a state before `on_overdue` applies, seconds; None: unlimited (pending is bounded by the
#: job's deadline, running by its max_duration).
TIME_LIMIT_S: Mapping[State, float | None] = MappingProxyType(
    {
        State.WAITING_FOR_INITIAL_CONTACT: 600.0,
        State.WAITING_FOR_INITIAL_RESOURCE: None,
        State.WAITING_FOR_RESOURCE: None,
        State.STANDBY: 900.0,
        State.LAUNCHING: 600.0,
        State.RUNNING_PROTECTED: None,
        State.RUNNING: None,
        State.CHECKPOINTING: 120.0,
        State.STOPPING: 60.0,
    }
)

#: What happens to an overdue run. Overdue in CHECKPOINTING, it gives up the checkpoint and stops from the last one.
ON_OVERDUE: Mapping[State, Event] = MappingProxyType(
    {
        State.WAITING_FOR_INITIAL_CONTACT: Event.FAIL,
        State.STANDBY: Event.UNASSIGNED,
        State.LAUNCHING: Event.FAIL,
        State.CHECKPOINTING: Event.CHECKPOINTED,
        State.STOPPING: Event.FAIL,
    }
)

_COARSE: Mapping[State, str] = MappingProxyType(
    {
        State.WAITING_FOR_INITIAL_CONTACT: "queued",
        State.WAITING_FOR_INITIAL_RESOURCE: "queued",
        State.WAITING_FOR_RESOURCE: "queued",
        State.STANDBY: "starting",
        State.LAUNCHING: "starting",
        State.RUNNING_PROTECTED: "running",
        State.RUNNING: "running",
        State.CHECKPOINTING: "rescaling",
        State.STOPPING: "rescaling",
        State.FINISHED: "succeeded",
        State.FAILED: "failed",
        State.CANCELLED: "cancelled",
    }
)
COARSE_STATES = ("queued", "starting", "running", "rescaling", "succeeded", "failed", "cancelled")


def advance(state: State, event: Event, history: tuple[str, ...] = ()) -> State:
    """The state after `event`; raises InvalidTransition if the table has no such edge."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise InvalidTransition(state, event, history) from None


def coarse_state(state: State, *, rescaling: bool = False) -> str:
    """The state that people see. A run that has trained before and moves to other GPUs is `rescaling` in STANDBY and
    LAUNCHING too; derived, never stored."""
    if rescaling and state in (State.STANDBY, State.LAUNCHING):
        return "rescaling"
    return _COARSE[state]
