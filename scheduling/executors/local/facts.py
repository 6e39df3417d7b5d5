"""The outcome of an epoch, read from its directory and the process table."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evenkeel.runner.files import read_object
from evenkeel.runner.listening import Listener
from evenkeel.runner.processes import Process
from evenkeel.runner.reports import write_atomically

from scheduling.executors.base import ExitInfo
from scheduling.executors.local.layout import RunRecord
from scheduling.executors.local.processes.sweeping import RunnerIdentity

MAX_RECORD_BYTES = 64 << 10
MAX_MESSAGE = 500
MAX_STEP = 10**13
MAX_CODE = 2**31 - 1
#: Characters that no database accepts, and those that control a terminal; tabs and line ends stay.
UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
REASONS = frozenset(
    {
        "done",
        "stopped",
        "user_error",
        "signal",
        "out_of_memory",
        "time_limit",
        "runner_lost",
        "launch_failed",
        "data_unavailable",
    }
)


def read_runner(epoch_dir: Path) -> RunnerIdentity | None:
    return RunnerIdentity.parse(read_object(epoch_dir / "runner.json", MAX_RECORD_BYTES))


def read_exit(epoch_dir: Path) -> ExitInfo | None:
    content = read_object(epoch_dir / "exit.json", MAX_RECORD_BYTES)
    if content is None:
        return None
    reason = content.get("reason")
    return ExitInfo(
        reason=reason if isinstance(reason, str) and reason in REASONS else "runner_lost",
        exit_code=_integer(content.get("exit_code"), MAX_CODE),
        signal=_integer(content.get("signal"), MAX_CODE),
        step=_integer(content.get("step"), MAX_STEP),
        message=_text(content.get("message")),
        nodes_fault=True if content.get("nodes_fault") is True else None,
        permanent=content.get("permanent") is True,
        alleged=content.get("alleged") is not False,
    )


def _integer(value: Any, most: int) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most else None


def _text(value: Any) -> str:
    return UNPRINTABLE.sub("", value[: 4 * MAX_MESSAGE])[:MAX_MESSAGE] if isinstance(value, str) else ""


def write_exit_record(
    record: RunRecord, epoch: int, epoch_dir: Path, reason: str, message: str, **more: Any
) -> ExitInfo:
    """Write the exit record in place of the runner, with the last step that its program reported."""
    listener = Listener(epoch_dir / "sdk", 1)
    listener.listen()
    found = ExitInfo(reason, step=_integer(listener.heard.step, MAX_STEP), message=message, **more)
    content = {
        "run_id": record.run_id,
        "epoch": epoch,
        "reason": found.reason,
        "exit_code": found.exit_code,
        "signal": found.signal,
        "step": found.step,
        "message": found.message,
        "alleged": found.alleged,
        "at": time.time(),
    }
    write_atomically(epoch_dir / "exit.json", content)
    return found


def usage_of(runner: RunnerIdentity, processes: Sequence[Process]) -> dict[str, float]:
    mine = [process for process in processes if process.session == runner.pid and process.pid != runner.pid]
    return {
        "cpu_s": round(sum(process.cpu_s for process in mine), 2),
        "rss_mib": round(sum(process.rss_mib for process in mine), 1),
        "processes": float(len(mine)),
    }
