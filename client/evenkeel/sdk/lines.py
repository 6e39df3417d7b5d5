"""What the SDK says to the runner: JSON lines appended to `sdk/rank<k>.jsonl`."""

from __future__ import annotations

import json
import math
import os
import time
from pathlib import Path
from typing import Any

STEP_LINE_EVERY_S = 0.25
#: As the portal has them: what is over is dropped there, so it is not sent.
NAMES_A_STEP, NAMES_A_RUN = 50, 200


class Lines:
    """Each line is one write to a file opened for appending, so threads need no lock."""

    def __init__(self, directory: Path, rank: int) -> None:
        self._fd = os.open(directory / f"rank{rank}.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._step_line_due_at = 0.0
        self._names: set[str] = set()
        self._sent = False

    def say(self, kind: str, **fields: Any) -> None:
        line = json.dumps({"kind": kind, "t": round(time.time(), 4), **fields}, default=str) + "\n"
        os.write(self._fd, line.encode())

    def step(self, step: int, metrics: dict[str, Any], *, force: bool = False) -> bool:
        """Says the step unless another was said a moment ago; metrics are read only when it is said."""
        now = time.monotonic()
        if now < self._step_line_due_at and not force:
            return False
        self._step_line_due_at = now + STEP_LINE_EVERY_S
        kept = self._within_bounds(metrics)
        self.say("step", step=step, metrics={name: number(metrics[name]) for name in kept})
        if len(kept) < len(metrics) and not self._sent:
            self._sent = True
            self.say(
                "notice",
                text=f"metrics beyond the limits are dropped: {NAMES_A_RUN} names a run, {NAMES_A_STEP} of them a step",
            )
        return True

    def _within_bounds(self, metrics: dict[str, Any]) -> list[str]:
        kept: list[str] = []
        for name in metrics:
            is_new = name not in self._names
            if len(kept) == NAMES_A_STEP:
                break
            if is_new and len(self._names) == NAMES_A_RUN:
                continue
            self._names.add(name)
            kept.append(name)
        return kept

    def close(self) -> None:
        os.close(self._fd)


def number(value: Any) -> float | None:
    """A metric as JSON has it: tensors of one element become numbers, what is not finite null."""
    result = float(value)
    return result if math.isfinite(result) else None
