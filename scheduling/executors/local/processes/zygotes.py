"""The executor's side of the fork servers: one per account, started on demand.

The listening socket is ours, in a directory that only we can access; the fork server inherits it. A socket file without
a process refuses connections, so a dead fork server is simply replaced.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path

import evenkeel
from evenkeel.runner.files import read_object
from evenkeel.runner.processes import boot_id, read_process, signal_quietly
from evenkeel.runner.reports import write_atomically

from scheduling.errors import ExecutorError
from scheduling.executors.accounts import Account
from scheduling.executors.local.environment import own_environment
from scheduling.executors.local.layout import try_lock
from scheduling.executors.local.machine.networks import Networks
from scheduling.executors.local.processes.sweeping import RunnerIdentity, owned
from scheduling.executors.local.processes.watching import end_holders, is_stopped, run_watched

log = logging.getLogger(__name__)

START_TIMEOUT_S = 20.0  # of an interpreter, on a busy machine
READY_TIMEOUT_S = 20.0  # importing the framework on a busy machine; a cold start would have to do the same
FORK_TIMEOUT_S = 5.0
LOOK_S = 0.5


class Zygotes:
    """`nobody`: the real and saved ids of fork servers under other accounts than ours. `networks`: where they are
    started; None: in the machine's."""

    def __init__(
        self,
        directory: Path,
        cwd: Path,
        *,
        preload: tuple[str, ...],
        idle_s: float,
        enabled: bool,
        nobody: int | None = None,
        networks: Networks | None = None,
    ) -> None:
        self._directory, self._cwd, self._nobody, self._networks = directory, cwd, nobody, networks
        self._preload, self._idle_s, self.enabled = preload, idle_s, enabled

    def fork_runner(self, account: Account, epoch_dir: Path, fds: dict[str, int]) -> bool:
        """True once a fork of the interpreter has become the runner; False if nothing was started."""
        if not self.enabled:
            return False
        try:
            connection = self._connect(account)
        except OSError as error:
            log.warning("no fork server: %s", error)
            return False
        with connection:
            try:
                if not self._answer(connection, account, READY_TIMEOUT_S).startswith(b"ready"):
                    return False
            except OSError as error:
                log.warning("the fork server of account %s is not ready: %s", account.uid, error)
                return False
            # From here on it may have forked, whatever happens: a second runner would see the launch lock or
            # runner.json, but we must not start one.
            asked = {"epoch_dir": str(epoch_dir), "fds": list(fds)}
            socket.send_fds(connection, [json.dumps(asked).encode()], list(fds.values()))
            with contextlib.suppress(OSError):
                self._answer(connection, account, FORK_TIMEOUT_S)
        return True

    def _answer(self, connection: socket.socket, account: Account, timeout_s: float) -> bytes:
        """A server that was stopped or does not answer is killed, and the next launch starts another."""
        give_up_at = time.monotonic() + timeout_s
        connection.settimeout(LOOK_S)
        while True:
            try:
                return connection.recv(64)
            except TimeoutError:
                stopped = any(is_stopped(read_process(it.pid), self._real(account)) for it in self.running(account))
                if stopped or time.monotonic() > give_up_at:
                    self.end(account)
                    raise TimeoutError("it was stopped" if stopped else f"no answer in {timeout_s:g} s") from None

    def running(self, account: Account) -> list[RunnerIdentity]:
        """The recorded fork servers of the account, of any version."""
        noted = (RunnerIdentity.parse(read_object(path)) for path in self._directory.glob(f"{_prefix(account)}-*.json"))
        real = self._real(account)
        return [server for server in noted if server and server.alive(real)]

    def _real(self, account: Account) -> Account:
        return Account(None if account.uid is None else self._nobody)

    def end(self, account: Account) -> None:
        """At once; its runners continue."""
        for server in self.running(account):
            signal_quietly(server.pid, signal.SIGKILL)

    def warm_up(self, account: Account) -> None:
        """Start the fork server of an account unless it runs; returns without waiting for it."""
        if self.enabled:
            with contextlib.suppress(OSError):
                self._connect(account).close()

    def stop(self, account: Account) -> None:
        """End the fork server; its runners continue."""
        for server in self.running(account):
            signal_quietly(server.pid, signal.SIGTERM)

    def _connect(self, account: Account) -> socket.socket:
        try:
            connection = self._dial(account)
        except (FileNotFoundError, ConnectionRefusedError):
            with self._starting(account) as lock:
                try:
                    connection = self._dial(account)
                except (FileNotFoundError, ConnectionRefusedError):
                    self._start(account, lock)
                    connection = self._dial(account)
        return connection

    @contextlib.contextmanager
    def _starting(self, account: Account) -> Iterator[int]:
        """The process that starts one holds the lock, and so does the new one until it has imported everything."""
        self._directory.mkdir(mode=0o700, exist_ok=True)
        path = self._lock_path(account)
        with path.open("w") as lock:
            give_up_at = time.monotonic() + READY_TIMEOUT_S
            while not try_lock(lock.fileno()):
                if end_holders(path, self._real(account), stopped_only=True) == 0 and time.monotonic() > give_up_at:
                    end_holders(path, self._real(account))
                    raise TimeoutError("another process has been starting it for too long")
                time.sleep(0.05)
            yield lock.fileno()

    def _lock_path(self, account: Account) -> Path:
        return self._directory / f"{self._name(account)}.lock"

    def _dial(self, account: Account) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with self._short_path(account) as path:
                connection.connect(path)
        except OSError:
            connection.close()
            raise
        return connection

    @contextlib.contextmanager
    def _short_path(self, account: Account) -> Iterator[str]:
        """Socket addresses are limited to about 100 characters; a data directory's path may be longer."""
        fd = os.open(self._directory, os.O_PATH | os.O_DIRECTORY)
        try:
            yield f"/proc/self/fd/{fd}/{self._name(account)}.sock"
        finally:
            os.close(fd)

    def _start(self, account: Account, lock: int) -> None:
        name = self._name(account)
        (self._directory / f"{name}.sock").unlink(missing_ok=True)
        command = [sys.executable, "-m", "evenkeel.runner.zygote", "--idle-s", str(self._idle_s)]
        reading, writing = os.pipe()
        with contextlib.ExitStack() as stack:
            stack.callback(os.close, reading)
            listener = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            log_file = stack.enter_context((self._directory / f"{name}.log").open("ab"))
            with self._short_path(account) as path:
                listener.bind(path)
            listener.listen(64)
            fds = {"listen": listener.fileno(), "pid": writing, "starting": lock}
            command += [f"--{word}-fd={fd}" for word, fd in fds.items()]
            if account.uid is not None:
                command += ["--account", str(account.uid), str(self._nobody)]
            begin = partial(
                run_watched,
                [*command, "--preload", ",".join(self._preload)],
                what="the fork server",
                timeout_s=START_TIMEOUT_S,
                account=self._real(account),
                lock=self._lock_path(account),
                env=own_environment() | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
                cwd=self._cwd,
                stdout=log_file,
                stderr=log_file,
                start_new_session=True,
                umask=0o077,
            )
            try:
                self._begin(begin, account, tuple(fds.values()))
            except ExecutorError as error:
                raise OSError(str(error)) from error
            finally:
                os.close(writing)
            self._note(account, reading)

    def _begin(self, begin: Callable[..., object], account: Account, fds: tuple[int, ...]) -> None:
        """In the network of the account, which exists as long as the server, or a fork of it."""
        with self._networks.joined(account) if self._networks else contextlib.nullcontext() as network:
            if network is None:
                begin(pass_fds=fds)
            else:
                network.run(partial(begin, pass_fds=(*fds, network.users)))

    def _note(self, account: Account, reading: int) -> None:
        """Record its identity where no job can write. It identifies itself before it imports anything."""
        ready, _, _ = select.select([reading], [], [], START_TIMEOUT_S)
        said = os.read(reading, 32) if ready else b""
        process = read_process(int(said)) if said.strip().isdigit() else None
        if process and owned(process.pid, self._real(account)):
            identity = RunnerIdentity(process.pid, process.start_ticks, boot_id())
            write_atomically(self._directory / f"{self._name(account)}.json", asdict(identity))

    def _name(self, account: Account) -> str:
        """Per account and per version of the loaded code: after an update a new one is started."""
        package = Path(evenkeel.__file__).parent
        files = [path for folder in ("", "sdk", "runner") for path in (package / folder).glob("*.py")]
        newest = max(path.stat().st_mtime_ns for path in files)
        own_network = self._networks is not None and self._networks.own
        key = f"{sys.executable}:{evenkeel.__version__}:{newest}:{self._preload}{':own network' * own_network}"
        return f"{_prefix(account)}-{hashlib.sha256(key.encode()).hexdigest()[:8]}"


def _prefix(account: Account) -> str:
    return str(account.uid) if account.uid is not None else "own"
