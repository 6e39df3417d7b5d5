"""Limits CPUs and memory of an epoch by control groups, if the administrator gave the portal one.

A group named `evenkeel`, beside or above the portal's own, is used; none is created unasked. Groups belong to the
manager of the tree (systemd, a container runtime), and a job moved out of the portal's group would escape the portal's
own limits. Below it each (run, epoch) has a group of its own.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from evenkeel.runner.processes import signal_quietly

log = logging.getLogger(__name__)

NAME = "evenkeel"
PERIOD_US = 100_000
REMOVE_TIMEOUT_S = 1.0
CONTROLLERS = ("cpu", "memory")


@dataclass(frozen=True, slots=True)
class Mount:
    """A mounted hierarchy: of version 2, or of version 1 with its controllers."""

    version: int
    controllers: frozenset[str]
    root: str  # the visible part of the hierarchy
    path: Path


@dataclass(frozen=True, slots=True)
class Parent:
    """The group assigned to us, for one controller."""

    version: int
    path: Path


def parse_mounts(mountinfo: str) -> list[Mount]:
    """The lines of /proc/self/mountinfo about control groups."""
    found = []
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2) if after.count(" ") >= 2 else ("", "", "")
        if kind in ("cgroup", "cgroup2"):
            root, path = before.split(" ")[3:5]
            controllers = frozenset(options.split(",")) & frozenset(CONTROLLERS)
            found.append(Mount(2 if kind == "cgroup2" else 1, controllers, root, Path(path)))
    return found


def parse_membership(text: str) -> dict[str, str]:
    """From /proc/self/cgroup: controller -> our group; that of version 2 under the empty name."""
    found = {}
    for line in text.splitlines():
        _, names, path = line.split(":", 2)
        found.update(dict.fromkeys(names.split(","), path))
    return found


def given_group(mount: Mount, own: str, name: str) -> Path | None:
    """The nearest group of that name from our own group upwards."""
    below = os.path.relpath(own, mount.root) if Path(own).is_relative_to(mount.root) else "."
    place = mount.path / below
    for candidate in (place, *place.parents):
        if (candidate / name).is_dir():
            return candidate / name
        if candidate == mount.path:
            break
    return None


def find_parents(proc: Path = Path("/proc/self"), name: str = NAME) -> dict[str, Parent]:
    """By controller, the group in which we may create others; empty if there is none, or we are not root."""
    if os.geteuid() != 0:
        return {}
    try:
        mounts = parse_mounts((proc / "mountinfo").read_text())
        membership = parse_membership((proc / "cgroup").read_text())
    except (OSError, ValueError):
        return {}
    found: dict[str, Parent] = {}
    for mount in mounts:
        names = CONTROLLERS if mount.version == 2 else tuple(mount.controllers)
        for controller in names:
            own = membership.get("" if mount.version == 2 else controller)
            path = given_group(mount, own, name) if own is not None else None
            if path and controller not in found and _usable(path, mount.version, controller):
                found[controller] = Parent(mount.version, path)
    return found


def _usable(path: Path, version: int, controller: str) -> bool:
    """Whether groups below it can have this controller."""
    if not os.access(path, os.W_OK):
        return False
    if version == 1:
        return all((path / name).exists() for name in _limits(1, controller, 1))
    try:
        if controller not in (path / "cgroup.controllers").read_text().split():
            return False
        (path / "cgroup.subtree_control").write_text(f"+{controller}")
    except OSError as error:  # for example because it has processes of its own
        log.warning("cgroup %s cannot hand on %s: %s", path, controller, error)
        return False
    return True


def _limits(version: int, controller: str, amount: int) -> dict[str, str]:
    """File -> content. `amount`: CPUs, or MiB."""
    if controller == "memory":
        return {"memory.max" if version == 2 else "memory.limit_in_bytes": str(amount << 20)}
    if version == 2:
        return {"cpu.max": f"{amount * PERIOD_US} {PERIOD_US}"}
    return {"cpu.cfs_period_us": str(PERIOD_US), "cpu.cfs_quota_us": str(amount * PERIOD_US)}


def _swap_limits(version: int, controller: str, amount: int) -> dict[str, str]:
    """Written after the limit itself, if the kernel counts swap: otherwise limited memory would be swapped out."""
    if controller != "memory":
        return {}
    return {"memory.swap.max": "0"} if version == 2 else {"memory.memsw.limit_in_bytes": str(amount << 20)}


class Cgroups:
    """The groups of epochs. Failures leave the other limits and are reported: they never prevent a run's start."""

    def __init__(self, parents: dict[str, Parent]) -> None:
        self._parents = parents

    def create(self, run_id: str, epoch: int, *, cpus: int | None, memory_mib: int | None) -> dict[str, Parent]:
        """Groups of the epoch by what they limit: only what is requested and possible."""
        made: dict[str, Parent] = {}
        for controller, amount in (("cpu", cpus), ("memory", memory_mib)):
            parent = self._parents.get(controller)
            if parent is None or amount is None:
                continue
            path = parent.path / _name(run_id, epoch)
            try:
                path.mkdir(mode=0o755, exist_ok=True)
                for name, content in _limits(parent.version, controller, amount).items():
                    (path / name).write_text(content)
                for name, content in _swap_limits(parent.version, controller, amount).items():
                    if (path / name).exists():
                        (path / name).write_text(content)
            except OSError as error:
                log.warning("run %s epoch %s: no cgroup for its %s: %s", run_id, epoch, controller, error)
            else:
                made[controller] = Parent(parent.version, path)
        return made

    def members(self, run_id: str, epoch: int) -> set[int]:
        """Processes in the epoch's groups, which no job can leave."""
        return {pid for parent in self._parents.values() for pid in _members(parent.path / _name(run_id, epoch))}

    def remove(self, run_id: str, epoch: int) -> None:
        """With all remaining processes, which get a moment to exit."""
        for path in {parent.path / _name(run_id, epoch) for parent in self._parents.values()}:
            give_up_at = time.monotonic() + REMOVE_TIMEOUT_S
            while not _remove(path):
                _end_members(path)
                if time.monotonic() > give_up_at:
                    log.warning("cgroup %s cannot be removed yet", path)
                    break
                time.sleep(0.02)

    def sweep(self, known: Iterable[tuple[str, int]], ours: Collection[str], min_age_s: float) -> None:
        """Remove empty groups of our unknown runs: others may belong to another portal. The kernel removes no group
        with processes."""
        names = {_name(run_id, epoch) for run_id, epoch in known}
        for parent in {parent.path for parent in self._parents.values()}:
            for path in _groups_in(parent):
                if path.name in names or path.name.rpartition(".")[0] not in ours:
                    continue
                with contextlib.suppress(FileNotFoundError):  # another process was faster
                    if time.time() - path.stat().st_mtime > min_age_s:
                        _remove(path)


def _name(run_id: str, epoch: int) -> str:
    return f"{run_id}.{int(epoch)}"


def _members(group: Path) -> list[int]:
    try:
        return [int(line) for line in (group / "cgroup.procs").read_text().split()]
    except OSError:
        return []


def _end_members(group: Path) -> None:
    """At once and including new forks, if the kernel can do that (version 2, Linux 5.14)."""
    kill = group / "cgroup.kill"
    if kill.exists():
        with contextlib.suppress(OSError):
            kill.write_text("1")
        return
    for pid in _members(group):
        if pid > 1:  # 0: of another namespace
            signal_quietly(pid, signal.SIGKILL)


def _groups_in(parent: Path) -> list[Path]:
    try:
        return [path for path in parent.iterdir() if path.is_dir()]
    except OSError:
        return []


def _remove(path: Path) -> bool:
    try:
        path.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def in_words(cpu: str | None, memory: str | None) -> str:
    """What limits CPUs and memory, each None if no limit was requested."""
    if cpu and cpu == memory:
        return f"CPU and memory are limited by {cpu}"
    parts = [f"CPUs are limited by {cpu}"] if cpu else []
    parts += [f"memory is limited by {memory}"] if memory else []
    return "; ".join(part[0].upper() + part[1:] if not index else part for index, part in enumerate(parts))
