"""The transition table: every (state, event) pair, and that every state can be left."""

from __future__ import annotations

import pytest

from scheduling.errors import InvalidTransition
from scheduling.lifecycle import (
    COARSE_STATES,
    LIVE,
    LOCKED,
    ON_OVERDUE,
    TERMINAL,
    TIME_LIMIT_S,
    TRANSITIONS,
    Event,
    State,
    advance,
    coarse_state,
)

# The edges of the thesis (section 4.4) and ours, written out once more on purpose.
EDGES = {
    "WAITING_FOR_INITIAL_CONTACT ACCEPTED WAITING_FOR_INITIAL_RESOURCE",
    "WAITING_FOR_INITIAL_RESOURCE ASSIGNED STANDBY",
    "WAITING_FOR_RESOURCE ASSIGNED STANDBY",
    "STANDBY GPUS_FREE LAUNCHING",
    "STANDBY UNASSIGNED WAITING_FOR_RESOURCE",
    "LAUNCHING FIRST_STEP_READY RUNNING_PROTECTED",
    "LAUNCHING STEPS_DONE FINISHED",
    "LAUNCHING REALLOCATED CHECKPOINTING",
    "RUNNING_PROTECTED PROTECTION_ENDED RUNNING",
    "RUNNING_PROTECTED STEPS_DONE FINISHED",
    "RUNNING_PROTECTED REALLOCATED CHECKPOINTING",
    "RUNNING REALLOCATED CHECKPOINTING",
    "RUNNING STEPS_DONE FINISHED",
    "CHECKPOINTING CHECKPOINTED STOPPING",
    "CHECKPOINTING STEPS_DONE FINISHED",
    "STOPPING STOPPED_REASSIGNED STANDBY",
    "STOPPING STOPPED_EMPTY WAITING_FOR_RESOURCE",
    "STOPPING STEPS_DONE FINISHED",
}


@pytest.mark.parametrize("state", State)
def test_every_event_moves_it_or_is_refused(state: State) -> None:
    for event in Event:
        expected = {edge.split()[2] for edge in EDGES if edge.startswith(f"{state} {event} ")}
        if event in (Event.FAIL, Event.CANCEL) and state in LIVE:
            expected = {"FAILED" if event is Event.FAIL else "CANCELLED"}
        if expected:
            assert {advance(state, event)} == expected
        else:
            with pytest.raises(InvalidTransition, match=state):
                advance(state, event, ("ACCEPTED",))


def test_the_table_has_no_other_edges() -> None:
    ours = {f"{state} {event} {to}" for (state, event), to in TRANSITIONS.items()}
    assert {edge for edge in ours if " FAIL " not in edge and " CANCEL " not in edge} == EDGES


def test_terminal_states_are_final_and_every_live_state_reaches_one() -> None:
    assert not any(state in TERMINAL for state, _ in TRANSITIONS)
    for state in LIVE:
        seen, todo = set(), [state]
        while todo:
            at = todo.pop()
            seen.add(at)
            todo += [to for (source, _), to in TRANSITIONS.items() if source is at and to not in seen]
        assert State.FINISHED in seen


def test_every_live_state_has_a_time_limit_entry_and_overdue_edges_exist() -> None:
    assert set(TIME_LIMIT_S) == set(LIVE)
    for state, event in ON_OVERDUE.items():
        assert TIME_LIMIT_S[state] is not None
        assert (state, event) in TRANSITIONS


def test_people_read_coarse_states() -> None:
    assert {coarse_state(state) for state in State} == set(COARSE_STATES)
    assert coarse_state(State.LAUNCHING, rescaling=True) == "rescaling"
    assert coarse_state(State.RUNNING, rescaling=True) == "running"
    assert LOCKED < LIVE
