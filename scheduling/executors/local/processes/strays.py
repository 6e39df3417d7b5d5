"""Kills processes of a project's account that outlived their run.

A process may leave its runner's session, drop its environment and kill its runner, but it keeps its account. If no
process of the account should live, the kernel kills all at once: kill(-1) under that account, which no fork escapes.
Beside live runs these are legitimate: their runners with sessions, descendants and marks, and likewise the holders of
the lock of a launch or a preparation. Everything else is killed; processes that respawn faster than they are found are
killed while the account is stopped for a moment.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from evenkeel.runner.processes import (
    Process,
    all_processes,
    process_ids,
    read_process,
    real_uid,
    signal_quietly,
)

from scheduling.errors import ExecutorError
from scheduling.executors.account_blocks import PROJECT_UIDS
from scheduling.executors.accounts import Account, Accounts
from scheduling.executors.local.layout import Layout, RunRecord
from scheduling.executors.local.processes.sweeping import RunnerIdentity, sdk_dir_of
from scheduling.executors.local.processes.watching import open_below

log = logging.getLogger(__name__)

LAUNCH_S = 120.0  # a launch lock held for longer legitimates nothing: launches are given up before
REST_S = 0.02
AT_ONCE_S = 10.0
YOUNG_S = 2.0  # some inits reap ended processes once a second
MAX_NAMES = 5
MAX_LISTED = 1_000
#: Real and saved id are ones that no other process has: processes of the account cannot stop it, and it can signal only
#: them. Fork servers of all projects share theirs, so it is a different id.
_SIGNAL_ACCOUNT = """
import os, sys
uid, own, number = map(int, sys.argv[1:])
os.setgroups([])
os.setresgid(own, own, own)
os.setresuid(own, uid, own)
try:
    os.kill(-1, number)
except ProcessLookupError:
    pass
"""


@dataclass(slots=True)
class Found:
    """Killed processes, by name."""

    names: dict[tuple[int, int], str] = field(default_factory=dict)
    uncounted: bool = False

    def add(self, process: Process) -> None:
        self.names[process.pid, process.start_ticks] = "".join(c if c.isprintable() else "?" for c in process.name)

    def in_words(self) -> str:
        """Empty if there were none."""
        if not self.names:
            return ""
        counts = Counter(self.names.values()).most_common()
        parts = [f"{count} × {name}" if count > 1 else name for name, count in counts[:MAX_NAMES]]
        parts += ["..."] if len(counts) > MAX_NAMES else []
        number = len(self.names)
        subject = f"{number} process{'es' if number > 1 else ''}"
        verb = "were" if number > 1 else "was"
        if self.uncounted:
            subject, verb = f"At least {subject}", "were"
        return f"{subject} outlived the run and {verb} ended: {', '.join(parts)}."


class Strays:
    """`runner_of`: the runner of a started launch that was not recorded yet."""

    def __init__(
        self,
        accounts: Accounts,
        runner_of: Callable[[Layout, RunRecord, int], RunnerIdentity | None],
    ) -> None:
        self._accounts, self._runner_of = accounts, runner_of
        self._gone: set[Path] = set()  # launches whose runner is known to have ended

    def end(self, account: Account, patience_s: float, *, min_age_s: float = 0.0, found: Found | None = None) -> Found:
        """Afterwards every process of the account is legitimate; ExecutorError if one cannot be killed. Processes that
        respawn for longer than `patience_s` are killed while the account is stopped. `found`: is added to."""
        found = Found() if found is None else found
        if not self._accounts.owns(account):  # processes of other portals and of people stay
            return found
        if min_age_s <= 0 and self._ended_as_one(account, found, patience_s):
            return found
        give_up_at, before = time.monotonic() + patience_s, set[tuple[int, int]]()
        while True:
            suspects, missed = self._unexplained(account, min_age_s)
            if not suspects and not missed:
                return found
            if time.monotonic() > give_up_at:
                if suspects or min_age_s <= 0:
                    self._end_while_stopped(account, min_age_s, found)
                return found
            for process in suspects:  # seen twice: a changing tree may be read inconsistently
                if (process.pid, process.start_ticks) in before:
                    found.add(process)
                    signal_quietly(process.pid, signal.SIGKILL)
            before = {(process.pid, process.start_ticks) for process in suspects}
            time.sleep(REST_S)

    def _ended_as_one(self, account: Account, found: Found, patience_s: float) -> bool:
        """False if some process of the account should live."""
        with self._accounts.nothing_begins(account) as alone:
            if not alone or self.runners(account) or self._beginning(self._of(account)):
                return False
            self._end_all(account, found, patience_s)
            return True

    def _end_while_stopped(self, account: Account, min_age_s: float, found: Found) -> None:
        """A stopped process cannot fork: all other processes are found and killed. Live runs of the project pause
        meanwhile, for some hundredths of a second; processes that were stopped before stay stopped."""
        with self._accounts.stopping(account):
            stopped = {process.pid for process in self._of(account) if process.state in "Tt"}
            self._signal_account(account, signal.SIGSTOP)
            try:
                suspects, _ = self._unexplained(account, min_age_s)
                for process in suspects:
                    signal_quietly(process.pid, signal.SIGKILL)
            finally:
                for process in self._of(account):
                    if process.pid not in stopped:
                        signal_quietly(process.pid, signal.SIGCONT)
        for process in suspects[:MAX_LISTED]:
            found.add(process)
        found.uncounted = found.uncounted or bool(suspects)
        self._wait_for_none(lambda: self._unexplained(account, min_age_s)[0], AT_ONCE_S)

    def _end_all(self, account: Account, found: Found, patience_s: float) -> None:
        # Even if none is found: a process may change its pid faster than we look. Stopped ones can be listed.
        self._signal_account(account, signal.SIGSTOP)
        for process in self._of(account)[:MAX_LISTED]:
            found.add(process)
        self._signal_account(account, signal.SIGKILL)
        self._wait_for_none(lambda: self._of(account), patience_s)

    @staticmethod
    def _wait_for_none(look: Callable[[], list[Process]], patience_s: float) -> None:
        give_up_at = time.monotonic() + patience_s
        while left := look():
            if time.monotonic() > give_up_at:
                raise ExecutorError(f"process {left[0].pid} cannot be killed", permanent=False)
            time.sleep(REST_S)

    def _signal_account(self, account: Account, number: signal.Signals) -> None:
        """The kernel forks nothing while it delivers this: none escapes."""
        if account.uid is None or not self._accounts.owns(account):
            return
        ids = (account.uid, account.uid + PROJECT_UIDS, int(number))
        command = [sys.executable, "-I", "-S", "-c", _SIGNAL_ACCOUNT, *map(str, ids)]
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(command, check=False, timeout=AT_ONCE_S, stdin=subprocess.DEVNULL, cwd="/", env={})

    def _of(self, account: Account) -> list[Process]:
        return self._look(account)[0]

    @staticmethod
    def _look(account: Account) -> tuple[list[Process], bool]:
        """Living processes of the account, and whether some process ended between the list and its reading, or young
        ones of the account have ended and were not reaped yet: processes that live for milliseconds may all have been
        missed."""
        found, missed = [], False
        for pid in process_ids():
            process, uid = read_process(pid), real_uid(pid)
            if process is None or uid is None:
                missed = True
            elif account.uid is None or uid == account.uid:
                if process.alive:
                    found.append(process)
                else:
                    missed |= process.age_s < YOUNG_S
        return found, missed

    def accounts_in_use(self) -> set[Account]:
        found = {Account(real_uid(process.pid)) for process in all_processes()}
        return {account for account in found if self._accounts.owns(account)}

    def _unexplained(self, account: Account, min_age_s: float) -> tuple[list[Process], bool]:
        mine, missed = self._look(account)
        if not mine:
            return [], missed
        explained = _Explained({process.pid: process for process in mine}, self.runners(account))
        left = [process for process in mine if not explained.covers(process) and process.age_s >= min_age_s]
        holding = self._beginning(left)
        return [process for process in left if not explained.covers(process, holding)], missed

    def _beginning(self, processes: Iterable[Process]) -> set[int]:
        """Holders of the lock of a launch that may still happen, or of a preparation."""
        places, found = [place / "run" / "local" for place in self._accounts.places()], set[int]()
        for process in processes:
            held = open_below(process.pid, places)
            if any(path.parent.name == "prepare" or process.age_s < LAUNCH_S for path in held):
                found.add(process.pid)
        return found

    def runners(self, account: Account) -> dict[str, RunnerIdentity]:
        """Of live runs of the account, by the mark in the environment of their processes."""
        found = {}
        for place in self._accounts.places():
            layout = Layout(place)
            for path in layout.own.glob("*.runner"):
                if path not in self._gone and (pair := self._live(layout, path, account)):
                    found[pair[0]] = pair[1]
        return found

    def _live(self, layout: Layout, path: Path, account: Account) -> tuple[str, RunnerIdentity] | None:
        run_id, _, epoch = path.stem.rpartition(".")
        noted = layout.runner(run_id, int(epoch))
        record = layout.record(run_id)
        if noted and not noted.alive(Account(None)):
            self._gone.add(path)
        if record is None or record.uid != account.uid:
            return None
        runner = noted or self._runner_of(layout, record, int(epoch))
        if runner is None or not runner.alive(account):
            return None
        return str(layout.epoch_dir(record, int(epoch)) / "sdk"), runner


@dataclass(frozen=True, slots=True)
class _Explained:
    mine: Mapping[int, Process]
    runners: Mapping[str, RunnerIdentity]

    def covers(self, process: Process, holding: Iterable[int] = ()) -> bool:
        """Whether the process is in the session of a runner (or of a process in `holding`), descends from one, or has
        its mark and is younger."""
        roots = {runner.pid for runner in self.runners.values()} | set(holding)
        if process.session in roots or self._descends(process, roots):
            return True
        runner = self.runners.get(sdk_dir_of(process.pid) or "")
        return runner is not None and process.start_ticks >= runner.start_ticks

    def _descends(self, process: Process, roots: set[int]) -> bool:
        above: Process | None = process
        for _ in range(len(self.mine)):
            if above is None or above.pid in roots:
                break
            above = self.mine.get(above.ppid)
        return above is not None and above.pid in roots
