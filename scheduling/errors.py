"""Every error the scheduling core raises.

SchedulingError
├── InvalidTransition      a run's state does not allow the event
├── InvalidParameters      a policy or cluster setting out of its documented range
├── InvalidInput           a trace, cluster file or case that cannot be read (names line and field)
├── SolverError            a solver timed out, failed or found the problem infeasible
└── ExecutorError          an executor could not carry out a command; `permanent` decides retrying
"""

from __future__ import annotations


class SchedulingError(Exception):
    """Root of the tree."""


class InvalidTransition(SchedulingError):
    """A run in `state` has no edge for `event`; `history` holds its last events, newest last."""

    def __init__(self, state: str, event: str, history: tuple[str, ...] = ()) -> None:
        super().__init__(
            f"a run in {state} cannot take {event}" + (f" (before: {', '.join(history)})" if history else "")
        )
        self.state, self.event, self.history = state, event, history


class InvalidParameters(SchedulingError):
    """`problems` maps each parameter to one sentence: what was wrong and what is allowed."""

    def __init__(self, problems: dict[str, str]) -> None:
        super().__init__("; ".join(f"{name}: {text}" for name, text in problems.items()))
        self.problems = problems


class InvalidInput(SchedulingError):
    """A file that cannot be read; the message names the place."""


class SolverError(SchedulingError):
    """The solver gave no optimal answer; `status` is its own word for the cause."""

    def __init__(self, status: str) -> None:
        super().__init__(f"the solver stopped with {status}")
        self.status = status


class ExecutorError(SchedulingError):
    """An executor call failed. A permanent error is not retried. `by_engine`: the engine itself refused; if that is
    permanent, no later launch of the job can succeed, otherwise it is temporary and not counted against the job."""

    def __init__(self, message: str, *, permanent: bool, by_engine: bool = False) -> None:
        super().__init__(message)
        self.permanent, self.by_engine = permanent, by_engine
