"""What became of an epoch, read from its directory and the process table."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evenkeel.runner.listening import Listener
from evenkeel.runner.processes import Process
from evenkeel.runner.reports import write_atomically

from scheduling.executors.base import ExitInfo
from scheduling.executors.local.layout import RunRecord, read_object
from scheduling.executors.local.sweeping import RunnerIdentity

MAX_REPORTS = 1000
MAX_MESSAGE = 500
MAX_STEP = 10**13
MAX_CODE = 2**31 - 1
#: What no database takes, and what steers a terminal; tabs and ends of lines stay.
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
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
    return RunnerIdentity.parse(read_object(epoch_dir / "runner.json"))


def read_exit(epoch_dir: Path) -> ExitInfo | None:
    content = read_object(epoch_dir / "exit.json")
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
    return _UNPRINTABLE.sub("", value[: 4 * MAX_MESSAGE])[:MAX_MESSAGE] if isinstance(value, str) else ""


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return _UNPRINTABLE.sub("", value)
    if isinstance(value, dict):
        return {_UNPRINTABLE.sub("", name): _cleaned(inner) for name, inner in value.items()}
    return [_cleaned(inner) for inner in value] if isinstance(value, list) else value


def _report(path: Path) -> Mapping[str, Any] | None:
    content = read_object(path)
    try:
        cleaned: Mapping[str, Any] | None = _cleaned(content)
        return cleaned
    except RecursionError:
        return None


def leave_exit(record: RunRecord, epoch: int, epoch_dir: Path, reason: str, message: str, **more: Any) -> ExitInfo:
    """Writes the exit record in the runner's stead, with the last step its program spoke of."""
    listener = Listener(epoch_dir / "sdk", 1)
    listener.listen()
    found = ExitInfo(reason, step=listener.heard.step, message=message, **more)
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


def spooled_reports(epoch_dir: Path) -> tuple[Mapping[str, Any], ...]:
    """Reports that the portal never took, oldest first."""
    try:
        paths = [path for path in (epoch_dir / "spool").glob("[0-9]*.json") if path.stem.isdecimal()]
    except OSError:  # closed to us by the job
        return ()
    paths.sort(key=lambda path: int(path.stem))
    reports = (_report(path) for path in paths[-MAX_REPORTS:])
    return tuple(report for report in reports if report is not None)


def usage_of(runner: RunnerIdentity, processes: Sequence[Process]) -> dict[str, float]:
    mine = [process for process in processes if process.session == runner.pid and process.pid != runner.pid]
    return {
        "cpu_s": round(sum(process.cpu_s for process in mine), 2),
        "rss_mib": round(sum(process.rss_mib for process in mine), 1),
        "processes": float(len(mine)),
    }
