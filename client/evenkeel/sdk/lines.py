"""What the SDK says to the runner: JSON lines appended to `sdk/rank<k>.jsonl`."""

from __future__ import annotations

import json
import math
import os
import time
from pathlib import Path
from typing import Any

STEP_LINE_EVERY_S = 0.25


class Lines:
    """Each line is one write to a file opened for appending, so threads need no lock."""

    def __init__(self, directory: Path, rank: int) -> None:
        self._fd = os.open(directory / f"rank{rank}.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._step_line_due_at = 0.0

    def say(self, kind: str, **fields: Any) -> None:
        line = json.dumps({"kind": kind, "t": round(time.time(), 4), **fields}, default=str) + "\n"
        os.write(self._fd, line.encode())

    def step(self, step: int, metrics: dict[str, Any], *, force: bool = False) -> bool:
        """Says the step unless another was said a moment ago; metrics are read only when it is said."""
        now = time.monotonic()
        if now < self._step_line_due_at and not force:
            return False
        self._step_line_due_at = now + STEP_LINE_EVERY_S
        self.say("step", step=step, metrics={name: number(value) for name, value in metrics.items()})
        return True

    def close(self) -> None:
        os.close(self._fd)


def number(value: Any) -> float | None:
    """A metric as JSON has it: tensors of one element become numbers, what is not finite null."""
    result = float(value)
    return result if math.isfinite(result) else None
