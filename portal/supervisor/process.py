"""Processes that may be other processes' children: identified by pid and start time, so a reused pid is never
touched."""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from portal.config.setup_errors import SetupError


def alive(process: psutil.Process | None) -> bool:
    if process is None:
        return False
    if isinstance(process, psutil.Popen):
        return process.poll() is None  # also collects our own dead children
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def find(pid: int, *, program: str) -> psutil.Process | None:
    """The running process with that pid, if it is the expected program."""
    with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
        process = psutil.Process(pid)
        if alive(process) and process.name() == program:
            return process
    return None


def working_in(directory: Path) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            if process.cwd() == str(directory) and alive(process):
                yield process


def wait_gone(process: psutil.Process, timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while alive(process):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def wait_until(ready: Callable[[], bool], timeout_s: float, otherwise: str) -> None:
    deadline = time.monotonic() + timeout_s
    while not ready():
        if time.monotonic() > deadline:
            raise SetupError(otherwise)
        time.sleep(0.03)
