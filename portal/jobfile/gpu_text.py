"""What a job has or would have, in words."""

from __future__ import annotations

from portal.jobfile.resources import WHOLE_PERCENT


def gang_words(count: int, accelerator_type: str, share_percent: int = WHOLE_PERCENT) -> str:
    """As `2 × v100`, or `50 % of 1 × v100`."""
    part = "" if share_percent == WHOLE_PERCENT else f"{share_percent} % of "
    return f"{part}{count} × {accelerator_type}"


def gpus_of(hundredths: int) -> int:
    """As many GPUs as so much takes."""
    return -(-hundredths // WHOLE_PERCENT)
