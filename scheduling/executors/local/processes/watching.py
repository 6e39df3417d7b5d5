"""Waits for processes under a job's account, which other processes of that account can stop at any moment.

A process that was stopped (SIGSTOP, or by a debugger) is killed instead, and the caller continues.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from evenkeel.runner.processes import Process, all_processes, read_process, signal_quietly

from scheduling.errors import ExecutorError
from scheduling.executors.accounts import Account
from scheduling.executors.local.processes.sweeping import owned

LOOK_S = 0.5
SEARCH_S = 5.0  # an account may have thousands of processes with thousands of open files each
MAX_DESCRIPTORS = 64  # a starting process has few
#: Command lines that may hold a launch lock where jobs run as the portal's own user.
_OURS = (b"evenkeel.runner", b"evenkeel.preparation")


def is_stopped(process: Process | None, account: Account) -> bool:
    """By another process: those stopped by the portal itself continue by themselves."""
    if process is None or process.state not in "Tt":
        return False
    if account.stop_lock is None:
        return True
    with account.stop_lock.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        again = read_process(process.pid)
    return again is not None and again.start_ticks == process.start_ticks and again.state in "Tt"


def holders(path: Path, account: Account) -> Iterator[Process]:
    """Processes of the account that have this file open; those of the portal itself belong to root."""
    give_up_at = time.monotonic() + SEARCH_S
    for process in all_processes():
        if time.monotonic() > give_up_at:
            return
        if not process.alive or process.pid == os.getpid() or not _may_hold(process.pid, account):
            continue
        if _has_open(process.pid, str(path)):
            yield process


def _may_hold(pid: int, account: Account) -> bool:
    if account.uid is not None:
        return owned(pid, account)
    try:
        return any(name in Path(f"/proc/{pid}/cmdline").read_bytes() for name in _OURS)
    except OSError:
        return False


def _has_open(pid: int, path: str) -> bool:
    try:
        with os.scandir(f"/proc/{pid}/fd") as entries:
            return any(_leads_to(entry, path) for entry in entries)
    except OSError:
        return False


def _leads_to(entry: os.DirEntry[str], path: str) -> bool:
    try:
        return os.readlink(entry.path) == path  # noqa: PTH115 (as text: what it names may be gone)
    except OSError:
        return False


def open_below(pid: int, places: Iterable[Path]) -> list[Path]:
    """Files below these directories that the process has open, among its first descriptors. It may be one of
    thousands."""
    above, found = tuple(f"{place}/" for place in places), list[Path]()
    with contextlib.suppress(OSError), os.scandir(f"/proc/{pid}/fd") as entries:
        for entry in itertools.islice(entries, MAX_DESCRIPTORS):
            with contextlib.suppress(OSError):
                path = os.readlink(entry.path)  # noqa: PTH115
                if path.startswith(above):
                    found.append(Path(path))
    return found


def end_holders(path: Path, account: Account, *, stopped_only: bool = False) -> int:
    """SIGKILL to each; returns how many there were."""
    found = [process for process in holders(path, account) if not stopped_only or is_stopped(process, account)]
    for process in found:
        signal_quietly(process.pid, signal.SIGKILL)
    return len(found)


def run_watched(
    command: list[str], *, what: str, timeout_s: float, account: Account, lock: Path | None = None, **options: Any
) -> subprocess.CompletedProcess[bytes]:
    """subprocess.run for a short command under the account. `lock`: a file that it and its children hold open. Raises
    ExecutorError, and leaves no process, if it was stopped or takes too long."""
    sent, give_up_at = options.pop("input", None), time.monotonic() + timeout_s
    with subprocess.Popen(command, stdin=subprocess.PIPE if sent else subprocess.DEVNULL, **options) as process:
        while True:
            try:
                out, err = process.communicate(sent, timeout=LOOK_S)
            except subprocess.TimeoutExpired:
                sent = None  # is under way
                stopped = is_stopped(read_process(process.pid), account)
                stopped |= lock is not None and end_holders(lock, account, stopped_only=True) > 0
                if not stopped and time.monotonic() < give_up_at:
                    continue
                process.kill()
                if lock is not None:
                    end_holders(lock, account)
                why = "was stopped by another process of its account" if stopped else f"took over {timeout_s:g} s"
                raise ExecutorError(f"{what} {why}", permanent=False) from None
            return subprocess.CompletedProcess(command, process.returncode, out, err)
