"""Puts a runner into the epoch's control groups before it starts a worker.

The runner says who it is, then waits at a pipe until we wrote its pid into the groups and tell it which limits hold.
We write the pid ourselves: a descriptor of `cgroup.procs` that root opened moves any process of the machine, and one
handed to the runner could be taken from it by other processes of its account. Whoever forks only afterwards has all
its children inside. Should we end meanwhile, the pipe does too, and the runner goes on without the groups.
"""

from __future__ import annotations

import logging
import os
from types import TracebackType

from scheduling.executors.base import LaunchRequest
from scheduling.executors.local import cgroups
from scheduling.executors.local.accounts import Account
from scheduling.executors.local.sweeping import RunnerIdentity

log = logging.getLogger(__name__)


class Gate:
    def __init__(self, groups: cgroups.Cgroups, request: LaunchRequest, *, emulated: bool) -> None:
        self._groups, self._request, self._emulated = groups, request, emulated
        self._made: dict[str, cgroups.Parent] = {}
        self._fds: tuple[int, int] | None = None
        self._admitted = False

    def __enter__(self) -> Gate:
        return self

    def open(self) -> int | None:
        """Makes the groups. Where the runner shall wait; None where it need not."""
        request = self._request
        self._made = self._groups.create(
            request.run_id, request.epoch, cpus=request.cpus, memory_mib=request.memory_mib
        )
        if self._made:
            self._fds = os.pipe()
        return self._fds[0] if self._fds else None

    def admit(self, runner: RunnerIdentity | None, account: Account) -> None:
        if self._fds is None or runner is None or not runner.alive(account):
            return
        joined = []
        for controller, group in self._made.items():
            try:
                (group.path / "cgroup.procs").write_text(str(runner.pid))
                joined.append(controller)
            except OSError as error:
                log.warning("runner %s does not join cgroup %s: %s", runner.pid, group.path, error)
        self._admitted = bool(joined)
        os.write(self._fds[1], limits_in_words(self._request, self._made, joined, emulated=self._emulated).encode())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for fd in self._fds or ():
            os.close(fd)
        if self._made and not self._admitted:
            self._groups.remove(self._request.run_id, self._request.epoch)


def limits_in_words(
    request: LaunchRequest, made: dict[str, cgroups.Parent], joined: list[str], *, emulated: bool
) -> str:
    """The line about limits in the runner's log; empty where none were asked for."""

    def by(controller: str, otherwise: str) -> str:
        return f"cgroups v{made[controller].version}" if controller in joined else otherwise

    cpu = by("cpu", "the number of threads only") if request.cpus else None
    memory = (
        by("memory", "rlimits" if emulated else "the runner, which looks every second") if request.memory_mib else None
    )
    words = cgroups.in_words(cpu, memory)
    return words if joined or not words else f"{words}: no cgroup may be written here"
