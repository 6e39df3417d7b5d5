"""Finds the processes of an epoch, even without its runner, and reliably kills them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evenkeel.runner.processes import Process, all_processes, boot_id, is_same, read_process, real_uid, signal_quietly

from scheduling.errors import ExecutorError
from scheduling.executors.accounts import Account

DEATH_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class RunnerIdentity:
    pid: int
    start_ticks: int
    boot_id: str

    @classmethod
    def parse(cls, content: dict[str, Any] | None) -> RunnerIdentity | None:
        try:
            found = cls(int(content["pid"]), int(content["start_ticks"]), str(content["boot_id"])) if content else None
        except (KeyError, TypeError, ValueError, OverflowError):
            return None
        return found if found and found.pid > 1 and len(found.boot_id) <= 64 else None  # session 0 belongs to no job

    def alive(self, account: Account) -> bool:
        """The file this was read from belongs to the account: it may only name processes of that account."""
        return is_same(self.pid, self.start_ticks, self.boot_id) and owned(self.pid, account)

    @property
    def before_reboot(self) -> bool:
        return self.boot_id != boot_id()


def sdk_dir_of(pid: int) -> str | None:
    """EVENKEEL_SDK_DIR of a process started for a job; it identifies data directory, run and epoch."""
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    for variable in variables:
        if variable.startswith(b"EVENKEEL_SDK_DIR="):
            return os.fsdecode(variable.partition(b"=")[2])
    return None


def owned(pid: int, account: Account) -> bool:
    return account.uid is None or real_uid(pid) == account.uid


@dataclass(frozen=True, slots=True)
class Prey:
    """The processes to find: those of these epochs, under no other account."""

    account: Account
    epochs: Mapping[Path, RunnerIdentity | None]

    def find(self) -> list[Process]:
        """Processes in the session of a runner, or with an epoch's mark in their environment."""
        marks = {str(epoch_dir / "sdk") for epoch_dir in self.epochs}
        sessions = {runner.pid for runner in self.epochs.values() if runner and not _reused(runner)}
        return [
            process
            for process in all_processes()
            if process.alive
            and (process.session in sessions or sdk_dir_of(process.pid) in marks)
            and process.pid != os.getpid()
            and owned(process.pid, self.account)
        ]

    def end_for_certain(self, patience_s: float = DEATH_TIMEOUT_S) -> None:
        """SIGKILL until none is left; ExecutorError if one does not end (it hangs in the kernel)."""
        give_up_at = time.monotonic() + patience_s
        while left := self.find():
            if time.monotonic() > give_up_at:
                raise ExecutorError(f"process {left[0].pid} cannot be killed", permanent=False)
            for process in left:
                signal_quietly(process.pid, signal.SIGKILL)
            time.sleep(0.02)


def _reused(runner: RunnerIdentity) -> bool:
    """The number of a session is not reused while it has members, unless all of ours are gone."""
    leader = read_process(runner.pid)
    return runner.before_reboot or (leader is not None and leader.start_ticks != runner.start_ticks)
