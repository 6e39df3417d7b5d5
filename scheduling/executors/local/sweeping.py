"""Finds the processes of an epoch, whatever became of its runner, and ends them for certain."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evenkeel.runner.processes import Process, all_processes, boot_id, is_same, read_process, signal_quietly

from scheduling.errors import ExecutorError

DEATH_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class RunnerIdentity:
    pid: int
    start_ticks: int
    boot_id: str

    @classmethod
    def parse(cls, content: dict[str, Any] | None) -> RunnerIdentity | None:
        try:
            return cls(int(content["pid"]), int(content["start_ticks"]), str(content["boot_id"])) if content else None
        except (KeyError, TypeError, ValueError):
            return None

    @property
    def alive(self) -> bool:
        return is_same(self.pid, self.start_ticks, self.boot_id)

    @property
    def before_reboot(self) -> bool:
        return self.boot_id != boot_id()


def sdk_dir_of(pid: int) -> str | None:
    """EVENKEEL_SDK_DIR of a process started for a job; it names data directory, run and epoch at once."""
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    for variable in variables:
        if variable.startswith(b"EVENKEEL_SDK_DIR="):
            return os.fsdecode(variable.partition(b"=")[2])
    return None


def members(epoch_dir: Path, runner: RunnerIdentity | None, processes: Iterable[Process]) -> list[Process]:
    """Processes of the epoch: in the session of its runner, or with its mark in their environment."""
    leader = read_process(runner.pid) if runner else None
    # The number of a session is not given again while it has members, unless all of ours are gone.
    reused = runner is None or runner.before_reboot or (leader is not None and leader.start_ticks != runner.start_ticks)
    mark = str(epoch_dir / "sdk")
    return [
        process
        for process in processes
        if process.alive
        and ((not reused and runner is not None and process.session == runner.pid) or sdk_dir_of(process.pid) == mark)
    ]


def end_for_certain(epoch_dir: Path, runner: RunnerIdentity | None) -> None:
    """SIGKILL until none is left; ExecutorError if one will not go (it sits in the kernel)."""
    give_up_at = time.monotonic() + DEATH_TIMEOUT_S
    while left := members(epoch_dir, runner, all_processes()):
        if time.monotonic() > give_up_at:
            raise ExecutorError(f"process {left[0].pid} of {epoch_dir} cannot be killed", permanent=False)
        for process in left:
            signal_quietly(process.pid, signal.SIGKILL)
        time.sleep(0.02)
