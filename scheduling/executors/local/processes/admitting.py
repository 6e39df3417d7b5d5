"""Moves a runner into the epoch's control groups before it starts a worker.

The runner identifies itself, then waits at a pipe until we have written its pid into the groups and report the limits.
We write the pid ourselves: a descriptor of `cgroup.procs` opened by root can move any process of the machine, and other
processes of its account could take it from the runner. As the runner forks only afterwards, all its children are
inside. If we die meanwhile, the pipe closes, and the runner continues without the groups. It waits for a limited time:
a runner that has closed the pipe may have workers already, and joins no group any more.
"""

from __future__ import annotations

import logging
import os
import select
from pathlib import Path
from types import TracebackType

from scheduling.executors.accounts import Account
from scheduling.executors.base import LaunchRequest
from scheduling.executors.local.processes import cgroups
from scheduling.executors.local.processes.sweeping import RunnerIdentity

log = logging.getLogger(__name__)


class Gate:
    def __init__(self, groups: cgroups.Cgroups, request: LaunchRequest, *, emulated: bool) -> None:
        self._groups, self._request, self._emulated = groups, request, emulated
        self._made: dict[str, cgroups.Parent] = {}
        self._fds: list[int] = []

    def __enter__(self) -> Gate:
        return self

    def open(self) -> int | None:
        """Create the groups. Returns the pipe at which the runner waits; None if it need not."""
        request = self._request
        self._made = self._groups.create(
            request.run_id, request.epoch, cpus=request.cpus, memory_mib=request.memory_mib
        )
        if self._made:
            self._fds = list(os.pipe())
        return self._fds[0] if self._fds else None

    def admit(self, runner: RunnerIdentity | None, account: Account) -> None:
        """Called once the runner has identified itself, so that it holds the reading end itself."""
        if not self._fds or runner is None or not runner.alive(account):
            return
        os.close(self._fds.pop(0))
        [writing] = self._fds
        if _has_no_reader(writing):
            log.warning("runner %s waits no longer: it stays outside of its cgroups", runner.pid)
            return
        entered = {path for path in {group.path for group in self._made.values()} if _enter(path, runner.pid)}
        joined = [controller for controller, group in self._made.items() if group.path in entered]
        words = limits_in_words(self._request, self._made, joined, emulated=self._emulated)
        if not joined:
            words += ": it could not be put into its cgroup"
        try:
            os.write(writing, words.encode())
        except BrokenPipeError:
            log.warning("runner %s did not wait for its cgroups: its workers may be outside", runner.pid)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """The groups stay: they are removed at the end of the epoch, or by a sweep."""
        for fd in self._fds:
            os.close(fd)


def _has_no_reader(writing: int) -> bool:
    poll = select.poll()
    poll.register(writing, 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def _enter(group: Path, pid: int) -> bool:
    try:
        (group / "cgroup.procs").write_text(str(pid))
    except OSError as error:
        log.warning("runner %s does not join cgroup %s: %s", pid, group, error)
        return False
    return True


def limits_in_words(
    request: LaunchRequest, made: dict[str, cgroups.Parent], joined: list[str], *, emulated: bool
) -> str:
    """The active limits, for the runner's log; empty if none were requested."""

    def by(controller: str, otherwise: str) -> str:
        return f"cgroups v{made[controller].version}" if controller in joined else otherwise

    cpu = by("cpu", "the number of threads only") if request.cpus else None
    memory = (
        by("memory", "rlimits" if emulated else "the runner, which looks every second") if request.memory_mib else None
    )
    return cgroups.in_words(cpu, memory)
