"""Processes that may be somebody else's children: known by pid and start time, so a reused pid is never touched."""

import contextlib
import time
from collections.abc import Callable

import psutil

from portal.supervisor.errors import SetupError


def alive(process: psutil.Process | None) -> bool:
    if process is None:
        return False
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def find(pid: int, *, program: str) -> psutil.Process | None:
    """The running process of that number, if it is the program we expect."""
    with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
        process = psutil.Process(pid)
        if alive(process) and process.name() == program:
            return process
    return None


def wait_gone(process: psutil.Process, timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while alive(process):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    reap(process)
    return True


def reap(process: psutil.Process) -> None:
    """Collect a dead child's exit status; of another's child there is none."""
    if isinstance(process, psutil.Popen):
        process.wait()


def wait_until(ready: Callable[[], bool], timeout_s: float, otherwise: str) -> None:
    deadline = time.monotonic() + timeout_s
    while not ready():
        if time.monotonic() > deadline:
            raise SetupError(otherwise)
        time.sleep(0.03)
