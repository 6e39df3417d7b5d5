"""A separate network for each account of jobs, with outgoing connections through pasta (docs/executors.md).

Servers inside, for example PyTorch's store, are reachable by jobs of the same project only. Root starts fork servers
and runners in it, before they switch to the account; they inherit the lock that shows its keeper that it is in use.
DATA/run/network/UID.json identifies the keeper.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import ipaddress
import json
import logging
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from evenkeel.runner.files import read_object
from evenkeel.runner.processes import boot_id, is_same, read_process, signal_quietly
from evenkeel.runner.reports import write_atomically

from scheduling.errors import ExecutorError
from scheduling.executors.accounts import Account
from scheduling.executors.base import Finding
from scheduling.executors.local.machine import network_keeper

log = logging.getLogger(__name__)

WISHES = ("auto", "own", "machine")
START_S, USERS_S, END_S = 15.0, 10.0, 5.0
MEND_AGAIN_S, MOST_MEND_AGAIN_S = 30.0, 240.0
NS_GET_USERNS = 0xB701
PACKAGE = "install pasta (Debian and Ubuntu: the package passt)"
SHARED = "runs share the machine's network: what a program listens on, PyTorch's MASTER_PORT too, any job can reach"
T = TypeVar("T")
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Kept:
    """A keeper, as recorded."""

    pid: int
    start_ticks: int
    boot_id: str
    holder: int
    inode: int
    ports: tuple[int, ...]

    @property
    def alive(self) -> bool:
        """A keeper that ended for lack of users closes its files first."""
        if not is_same(self.pid, self.start_ticks, self.boot_id):
            return False
        with contextlib.suppress(OSError):
            return any(Path(f"/proc/{self.pid}/fd").iterdir()) and network_of(self.holder) == self.inode
        return False


@dataclass(frozen=True, slots=True)
class Network:
    """Of an account, while a process is started in it. `users`: started processes inherit this descriptor."""

    users: int
    namespace: int
    inode: int

    def run(self, begin: Callable[[], T]) -> T:
        """Run in a thread that is in the network and ends there: the processes that it starts are in the network,
        too."""

        def inside() -> T:
            if _libc.setns(self.namespace, network_keeper.CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "cannot enter the network of the account")
            return begin()

        with ThreadPoolExecutor(1) as pool:
            return pool.submit(inside).result()


def network_of(process: int | str) -> int:
    """The inode of the process's network; OSError if the process is gone."""
    return Path(f"/proc/{process}/ns/net").stat().st_ino


def find_pasta() -> str:
    return shutil.which("pasta") or ""


class Networks:
    """`wish`: "own", "machine", or "auto" for "own" if pasta is found; without `uid`, pasta's account, jobs have no
    separate accounts either, and stay in the machine's network. `ports`: of its loopback device, open to all runs.
    `members`: processes that may be in the network of an account, in case its keeper is gone."""

    def __init__(
        self,
        directory: Path,
        wish: str,
        ports: Iterable[int],
        *,
        uid: int | None,
        members: Callable[[Account], Iterable[int]],
    ) -> None:
        if wish not in WISHES:
            raise ExecutorError(f"a run's network is one of {', '.join(WISHES)}, not {wish!r}", permanent=True)
        self._directory, self._wish, self._ports = directory, wish, frozenset(ports)
        self._uid, self._members = uid, members
        self._pasta = find_pasta()
        self.own = uid is not None and wish != "machine" and bool(self._pasta)
        self._mend_after: dict[int | None, tuple[float, float]] = {}  # account -> (next attempt, pause after it)
        self._mending: threading.Thread | None = None

    @property
    def problem(self) -> str | None:
        """Why no job may start, in one sentence."""
        if self._wish != "own" or self.own:
            return None
        if self._uid is None:
            return "Networks of their own for runs need a portal that runs as root, with accounts for projects."
        return f"Networks of their own for runs need pasta, which is not found: {PACKAGE}."

    @contextlib.contextmanager
    def joined(self, account: Account, api_url: str = "") -> Iterator[Network | None]:
        """The network of the account, created if missing, and kept for processes that are started meanwhile. None if
        runs are in the machine's. ExecutorError if it is unavailable."""
        if not self.own or account.uid is None:
            yield None
            return
        with self._in_use(account) as users:
            kept = self._found_or_made(account, self._ports | loopback_port(api_url))
            try:
                namespace = os.open(f"/proc/{kept.holder}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            except OSError as error:
                raise ExecutorError(f"the network of the run is gone: {error}", permanent=False) from error
            try:
                yield Network(users, namespace, kept.inode)
            finally:
                os.close(namespace)

    def has(self, network: Network | None, pid: int) -> bool:
        """Whether the process is in the intended network, or has ended."""
        try:
            return network is None or network_of(pid) == network.inode
        except OSError:
            return True

    def mend(self, account: Account, runner: int) -> None:
        """Restore the outgoing connections of a live run if its keeper was killed. That can take as long as a start, so
        it runs in a thread, for one account at a time; after failures, each pause is twice the previous one."""
        if not self.own or account.uid is None or (self._mending is not None and self._mending.is_alive()):
            return
        kept = self._kept(account)
        if kept is not None and kept.alive:
            self._mend_after.pop(account.uid, None)
            return
        again_at, pause_s = self._mend_after.get(account.uid, (0.0, MEND_AGAIN_S / 2))
        with contextlib.suppress(OSError):
            if again_at > time.monotonic() or network_of(runner) == network_of("self"):
                return  # in the machine's network: it was started when there was no other
            pause_s = min(2 * pause_s, MOST_MEND_AGAIN_S)
            self._mend_after[account.uid] = (time.monotonic() + pause_s, pause_s)
            self._mending = threading.Thread(target=self._mend, args=(account,), daemon=True)
            self._mending.start()

    def _mend(self, account: Account) -> None:
        log.warning("account %s: the keeper of its network was gone, and is started again", account.uid)
        try:
            with self.joined(account):
                pass
        except (OSError, ExecutorError) as error:
            log.warning("account %s: runs have no way out of their network: %s", account.uid, error)

    def examine(self) -> Finding:
        if self.problem:
            return Finding("network of runs", False, self.problem, PACKAGE)
        if self._wish == "machine":
            return Finding("network of runs", True, SHARED, "leave EVENKEEL_RUN_NETWORK unset", warning=True)
        if not self.own:
            return Finding("network of runs", True, SHARED, f"{PACKAGE} and restart the portal", warning=True)
        fix = "see docs/executors.md, The network of runs; or EVENKEEL_RUN_NETWORK=machine"
        try:
            self._try_out()
        except (ExecutorError, OSError) as error:
            return Finding("network of runs", False, str(error), fix)
        ports = ", ".join(map(str, sorted(self._ports)))
        besides = f" and ports {ports} of the machine's loopback device" if ports else ""
        seen = f"those of each project have one of their own, from which they reach the portal{besides}, and outside"
        return Finding("network of runs", True, seen)

    def _try_out(self) -> None:
        self._directory.mkdir(mode=0o700, exist_ok=True)
        path = self._directory / "trial.lock"
        with path.open("w") as users:  # without a lock the keeper ends at once
            self._start(users.fileno(), path.with_suffix(".log"), self._ports, ())

    # Keepers

    @contextlib.contextmanager
    def _in_use(self, account: Account) -> Iterator[int]:
        """A keeper that ends is the only holder of the lock."""
        self._directory.mkdir(mode=0o700, exist_ok=True)
        fd = os.open(self._path(account, "users"), os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _lock(fd, fcntl.LOCK_SH, USERS_S)
            yield fd
        finally:
            os.close(fd)

    def _found_or_made(self, account: Account, ports: frozenset[int]) -> Kept:
        kept = self._kept(account)
        if kept is not None and kept.alive and ports <= set(kept.ports):
            return kept
        with self._path(account, "starting").open("w") as starting:
            _lock(starting.fileno(), fcntl.LOCK_EX, START_S)
            kept = self._kept(account)
            if kept is not None and kept.alive and ports <= set(kept.ports):
                return kept
            return self._make(account, ports, kept)

    def _make(self, account: Account, ports: frozenset[int], before: Kept | None) -> Kept:
        """A new one for the network that processes of the account already use, if there are any."""
        with contextlib.ExitStack() as stack:
            namespaces = self._namespaces(account, before)
            for fd in namespaces:
                stack.callback(os.close, fd)
            if before is not None:
                _end(before)
                ports |= set(before.ports if namespaces else ())
            users = os.open(self._path(account, "users"), os.O_RDONLY | os.O_CLOEXEC)
            stack.callback(os.close, users)
            kept = self._start(users, self._path(account, "log"), ports, namespaces)
        write_atomically(self._path(account, "json"), asdict(kept))
        return kept

    def _namespaces(self, account: Account, before: Kept | None) -> tuple[int, ...]:
        machines = network_of("self")
        for pid in [*([before.holder] if before and before.alive else []), *self._members(account)]:
            with contextlib.suppress(OSError):
                network = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
                if os.fstat(network).st_ino != machines:
                    return fcntl.ioctl(network, NS_GET_USERNS), network
                os.close(network)
        return ()

    def _start(self, users: int, log_file: Path, ports: frozenset[int], namespaces: tuple[int, ...]) -> Kept:
        reading, writing = os.pipe()
        interface, has_ipv6 = way_out()
        terms = {
            "uid": self._uid,
            "pasta": self._pasta,
            "ports": sorted(ports),
            "interface": interface,
            "ipv6": has_ipv6,
            "resolver": local_resolver(),
            "namespaces": namespaces,
            "users": users,
            "said": writing,
        }
        try:
            with log_file.open("ab") as output:
                began = output.tell()
                try:
                    subprocess.run(
                        [sys.executable, "-I", "-S", network_keeper.__file__, json.dumps(terms)],
                        check=False, timeout=START_S, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                        pass_fds=(users, writing, *namespaces), start_new_session=True, umask=0o077,
                        env=_environment(), cwd="/",
                    )  # fmt: skip
                except subprocess.TimeoutExpired:
                    raise ExecutorError("the network of the run was not made in time", permanent=False) from None
                finally:
                    os.close(writing)
            said = _read(reading)
        finally:
            os.close(reading)
        if "problem" in said:
            text = f"the network of the run cannot be made: {said['problem']}{_last_words(log_file, began)}"
            raise ExecutorError(text, permanent=False)
        process = read_process(said["pid"])
        ticks = process.start_ticks if process else 0
        return Kept(said["pid"], ticks, boot_id(), said["holder"], said["inode"], tuple(sorted(ports)))

    def _kept(self, account: Account) -> Kept | None:
        content = read_object(self._path(account, "json"))
        with contextlib.suppress(KeyError, TypeError):
            return Kept(**(content | {"ports": tuple(content["ports"])})) if content else None
        return None

    def _path(self, account: Account, ending: str) -> Path:
        return self._directory / f"{account.uid}.{ending}"


def _lock(fd: int, kind: int, patience_s: float) -> None:
    give_up_at = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(fd, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > give_up_at:
                raise ExecutorError("the network of the run is being made for too long", permanent=False) from None
            time.sleep(0.01)
        else:
            return


def _end(kept: Kept) -> None:
    """With its pasta: two must not forward packets of one network."""
    give_up_at = time.monotonic() + END_S
    while is_same(kept.pid, kept.start_ticks, kept.boot_id):
        signal_quietly(kept.pid, signal.SIGKILL)
        if time.monotonic() > give_up_at:
            raise ExecutorError(f"process {kept.pid} cannot be killed", permanent=False)
        time.sleep(0.005)


def _read(reading: int) -> dict[str, Any]:
    ready, _, _ = select.select([reading], [], [], START_S)
    text = os.read(reading, 65_536) if ready else b""
    said: dict[str, Any] = json.loads(text or b'{"problem": "its keeper ended"}')
    return said


def _last_words(log_file: Path, began: int) -> str:
    with log_file.open("rb") as file:
        file.seek(began)
        lines = [line for line in file.read(4000).decode(errors="replace").splitlines() if "syslog" not in line]
    return f" ({lines[-1].strip()[:300]})" if lines else ""


def _environment() -> dict[str, str]:
    """Needed by some interpreters."""
    return {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}


# The machine's side


def loopback_port(url: str) -> frozenset[int]:
    """The port of an address on the machine's loopback device; None for others."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    with contextlib.suppress(ValueError):
        if host == "localhost" or ipaddress.ip_address(host).is_loopback:
            return frozenset({parts.port or (443 if parts.scheme == "https" else 80)})
    return frozenset()


def way_out(proc: Path = Path("/proc/net"), devices: Path = Path("/sys/class/net")) -> tuple[str, bool]:
    """The interface of the default route or, without one, the first; and whether IPv6 has a route at all."""
    routes = [line.split() for line in _lines(proc / "route")[1:]]
    routes_6 = [line.split() for line in _lines(proc / "ipv6_route")]
    default = [fields[0] for fields in routes if fields[1] == fields[7] == "00000000"]
    default_6 = [fields[9] for fields in routes_6 if fields[1] == "00" and int(fields[0], 16) == 0]
    default_6 = [name for name in default_6 if name != "lo"]
    others = sorted(fields[0] for fields in routes) or sorted(path.name for path in devices.iterdir())
    return [*default, *default_6, *others][0], bool(default_6)


def _lines(path: Path) -> list[str]:
    with contextlib.suppress(OSError):
        return path.read_text().splitlines()
    return []


def local_resolver(path: Path = Path("/etc/resolv.conf")) -> str:
    """The first name server on the machine's loopback device; empty if there is none."""
    for line in _lines(path):
        words = line.split()
        if len(words) > 1 and words[0] == "nameserver":
            with contextlib.suppress(ValueError):
                address = ipaddress.ip_address(words[1])
                if address.version == 4 and address.is_loopback:
                    return words[1]
    return ""
