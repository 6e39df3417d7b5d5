"""Formats numbers, gangs and durations for the sentences of reasons."""

from __future__ import annotations

from scheduling.domain.job import Gang


def span(seconds: float) -> str:
    """A duration in one unit, for sentences."""
    for unit, name in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds:.0f} s"


def counted(number: int, noun: str) -> str:
    """As `1 GPU` and `2 GPUs`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def words(gang: Gang) -> str:
    return f"{gang.count} \N{MULTIPLICATION SIGN} {gang.type}"
