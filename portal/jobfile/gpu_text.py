"""Texts about a job's present or future GPUs."""

from __future__ import annotations

from portal.jobfile.resources import WHOLE_PERCENT


def gang_words(count: int, accelerator_type: str, share_percent: int = WHOLE_PERCENT) -> str:
    """As `2 × v100`, or `50 % of 1 × v100`."""
    part = "" if share_percent == WHOLE_PERCENT else f"{share_percent} % of "
    return f"{part}{count} × {accelerator_type}"


def gpus_of(hundredths: int) -> int:
    """The number of GPUs that this takes."""
    return -(-hundredths // WHOLE_PERCENT)
