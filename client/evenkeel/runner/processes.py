"""What Linux says about processes, and what it is asked to do for ours."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NAME, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 4, 15, 36, 38
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Process:
    pid: int
    name: str
    state: str
    ppid: int
    session: int
    cpu_s: float
    start_ticks: int
    rss_mib: float

    @property
    def alive(self) -> bool:
        return self.state not in "ZX"

    @property
    def age_s(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME) - self.start_ticks / CLOCK_TICKS


def read_process(pid: int) -> Process | None:
    """None when there is no such process; a zombie is one that is not alive."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    name, _, rest = text.partition("(")[2].rpartition(")")
    fields = rest.split()
    return Process(
        pid=pid,
        name=name,
        state=fields[0],
        ppid=int(fields[1]),
        session=int(fields[3]),
        cpu_s=(int(fields[11]) + int(fields[12])) / CLOCK_TICKS,
        start_ticks=int(fields[19]),
        rss_mib=int(fields[21]) * PAGE_BYTES / 2**20,
    )


def real_uid(pid: int) -> int | None:
    try:
        for line in Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines():
            if line.startswith("Uid:"):
                return int(line.split()[1])
    except OSError:
        pass
    return None


def process_ids() -> list[int]:
    """Newest first, until numbers begin anew: what lives for milliseconds is gone before a long list comes to it."""
    return [int(name) for name in reversed(os.listdir("/proc")) if name.isdigit()]  # noqa: PTH208 (names are all)


def all_processes() -> Iterator[Process]:
    """In the order of `process_ids`."""
    for pid in process_ids():
        process = read_process(pid)
        if process:
            yield process


def descendants(pid: int) -> list[Process]:
    """Every process below `pid`; with a subreaper on top none of them gets away by orphaning itself."""
    children: dict[int, list[Process]] = {}
    for process in all_processes():
        children.setdefault(process.ppid, []).append(process)
    found, todo = [], [pid]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += [process.pid for process in below]
    return found


def identity() -> dict[str, int | str | float]:
    """Who this process is, for `runner.json`: a pid alone is reused."""
    me = read_process(os.getpid())
    if me is None:
        raise RuntimeError("/proc is not mounted")
    return {"pid": me.pid, "start_ticks": me.start_ticks, "boot_id": boot_id(), "started_at": time.time()}


@cache
def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def is_same(pid: int, start_ticks: int, boot: str) -> bool:
    """Whether the process that was given this identity still runs."""
    process = read_process(pid) if boot == boot_id() else None
    return process is not None and process.alive and process.start_ticks == start_ticks


def group_of(pid: int) -> int | None:
    with contextlib.suppress(ProcessLookupError):
        return os.getpgid(pid)
    return None


def group_lives(group: int) -> bool:
    """Whether the process group has a member, a zombie included."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, 0)
        return True
    return False


def signal_quietly(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def kernel_oom_kills() -> int:
    """How often this kernel has killed for want of memory; 0 where it does not say."""
    try:
        return _counted("oom_kill", Path("/proc/vmstat"))
    except OSError:
        return 0


def group_oom_kills(name: str, proc: Path = Path("/proc/self")) -> int:
    """How often the kernel has killed in our control group of memory; 0 where we are in none of that name."""
    with contextlib.suppress(OSError, ValueError):
        lines = [line.split(":", 2) for line in (proc / "cgroup").read_text().splitlines()]
        own = {controller: group for _, controllers, group in lines for controller in controllers.split(",")}
        for line in (proc / "mountinfo").read_text().splitlines():
            before, _, after = line.partition(" - ")
            kind, _, options = after.split(" ", 2)
            if kind == "cgroup2":
                group, file = own.get("", "/"), "memory.events"
            elif kind == "cgroup" and "memory" in options.split(","):
                group, file = own.get("memory", "/"), "memory.oom_control"
            else:
                continue
            root, mount = before.split(" ")[3:5]
            path = Path(mount, os.path.relpath(group, root), file)
            if Path(group).name == name and path.exists():
                return _counted("oom_kill", path)
    return 0


def _counted(name: str, path: Path) -> int:
    for line in path.read_text().splitlines():
        if line.startswith(f"{name} "):
            return int(line.split()[1])
    return 0


def proportional_mib(pid: int) -> float:
    """Memory of a process with shared pages divided among those who share them."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    except OSError:
        pass
    return 0.0


# Requests to the kernel

_libc = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, argument: int | bytes) -> None:
    value = ctypes.c_char_p(argument) if isinstance(argument, bytes) else ctypes.c_ulong(argument)
    if _libc.prctl(option, value, ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def adopt_orphans() -> None:
    prctl(PR_SET_CHILD_SUBREAPER, 1)


def forbid_new_privileges() -> None:
    prctl(PR_SET_NO_NEW_PRIVS, 1)


def die_with_parent(parent: int) -> None:
    """For a new child: SIGKILL when its parent is gone, which may already have happened."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(137)


def die_first_for_memory() -> None:
    """For a worker: where memory runs out the kernel shall end it, not the runner, which can say what happened.
    Relative to the runner, whose own score may have been raised; who raises needs no rights."""
    score = Path("/proc/self/oom_score_adj")
    with contextlib.suppress(OSError, ValueError):
        score.write_text(str(min(1000, int(score.read_text()) + 500)))


def set_name(name: str) -> None:
    prctl(PR_SET_NAME, name.encode()[:15])


def limit_resources(limits: dict[str, int]) -> None:
    """Lowers each named limit (`core`, `nofile`, `nproc`, `data`), never above the present hard one."""
    for name, value in limits.items():
        kind = getattr(resource, f"RLIMIT_{name.upper()}")
        _, hard = resource.getrlimit(kind)
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))
