"""Which deadlines may be given."""

from __future__ import annotations

from datetime import datetime

from portal.jobs.schema import FieldProblem, Problems


def check_deadline(deadline: datetime | None, now: datetime, *, again: bool = False) -> None:
    """Raises Problems for one that has passed. `again`: it may be the old job's, which nobody wrote just now."""
    if deadline is None or deadline > now:
        return
    how = " with the key deadline of the changes (--set deadline=...)" if again else ""
    message = (
        f"{deadline:%Y-%m-%d %H:%M:%S %Z} has passed: it is {now:%Y-%m-%d %H:%M:%S} UTC. "
        f"Set a time that is still to come{how}, or null for none."
    )
    raise Problems([FieldProblem("deadline", message, "past")])
