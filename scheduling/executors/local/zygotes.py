"""The executor's side of the fork servers: one per account, started when first needed.

The listening socket is ours, in a directory only we can enter; the fork server inherits it. A socket
file without a process behind it refuses connections, so a dead fork server is simply replaced.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import evenkeel
from evenkeel.runner.processes import read_process, signal_quietly

from scheduling.executors.local.accounts import Account

log = logging.getLogger(__name__)

READY_TIMEOUT_S = 60.0  # importing the framework on a busy machine; a cold start would have to do the same
FORK_TIMEOUT_S = 10.0


class Zygotes:
    def __init__(self, directory: Path, cwd: Path, *, preload: tuple[str, ...], idle_s: float, enabled: bool) -> None:
        self._directory, self._cwd = directory, cwd
        self._preload, self._idle_s, self.enabled = preload, idle_s, enabled

    def fork_runner(self, account: Account, epoch_dir: Path, fds: dict[str, int]) -> bool:
        """True once a fork of the interpreter has become the runner; False when nothing was begun."""
        if not self.enabled:
            return False
        try:
            connection = self._connect(account)
        except OSError as error:
            log.warning("no fork server: %s", error)
            return False
        with connection:
            try:
                if not connection.recv(64).startswith(b"ready"):
                    return False
            except OSError as error:
                log.warning("the fork server is not ready: %s", error)
                return False
            # From here on it may have forked, whatever happens: a second runner would see the launch
            # lock or runner.json, but we shall not start one.
            connection.settimeout(FORK_TIMEOUT_S)
            asked = {"epoch_dir": str(epoch_dir), "fds": list(fds)}
            socket.send_fds(connection, [json.dumps(asked).encode()], list(fds.values()))
            with contextlib.suppress(OSError):
                connection.recv(64)
        return True

    def warm_up(self, account: Account) -> None:
        """Starts the fork server of an account unless it runs; returns without waiting for it."""
        if self.enabled:
            with contextlib.suppress(OSError):
                self._connect(account).close()

    def stop(self, account: Account) -> None:
        """Ends the fork server; runners that came from it go on."""
        with contextlib.suppress(OSError), self._dial(account) as connection:
            connection.settimeout(READY_TIMEOUT_S)
            word, _, pid = connection.recv(64).decode().partition(" ")
            if word == "ready" and self._is_zygote(int(pid)):
                signal_quietly(int(pid), signal.SIGTERM)

    @staticmethod
    def _is_zygote(pid: int) -> bool:
        process = read_process(pid)
        return process is not None and process.name == "ek-zygote"

    def _connect(self, account: Account) -> socket.socket:
        try:
            connection = self._dial(account)
        except (FileNotFoundError, ConnectionRefusedError):
            with self._starting(account):
                try:
                    connection = self._dial(account)
                except (FileNotFoundError, ConnectionRefusedError):
                    self._start(account)
                    connection = self._dial(account)
        connection.settimeout(READY_TIMEOUT_S)
        return connection

    @contextlib.contextmanager
    def _starting(self, account: Account) -> Iterator[None]:
        self._directory.mkdir(mode=0o700, exist_ok=True)
        with (self._directory / f"{self._name(account)}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

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
        """Socket addresses hold about 100 characters; a data directory's path may be longer."""
        fd = os.open(self._directory, os.O_PATH | os.O_DIRECTORY)
        try:
            yield f"/proc/self/fd/{fd}/{self._name(account)}.sock"
        finally:
            os.close(fd)

    def _start(self, account: Account) -> None:
        from scheduling.executors.local.launching import own_environment

        name = self._name(account)
        (self._directory / f"{name}.sock").unlink(missing_ok=True)
        command = [sys.executable, "-m", "evenkeel.runner.zygote", "--idle-s", str(self._idle_s)]
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            with self._short_path(account) as path:
                listener.bind(path)
            listener.listen(64)
            with (self._directory / f"{name}.log").open("ab") as log_file:
                subprocess.run(
                    [*command, "--listen-fd", str(listener.fileno()), "--preload", ",".join(self._preload)],
                    env=own_environment() | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
                    cwd=self._cwd,
                    stdin=subprocess.DEVNULL,
                    stdout=log_file,
                    stderr=log_file,
                    pass_fds=(listener.fileno(),),
                    start_new_session=True,
                    timeout=READY_TIMEOUT_S,
                    umask=0o077,
                    check=False,
                    **account.spawn_as(),
                )

    def _name(self, account: Account) -> str:
        """Per account and per version of what is loaded: after an update a new one is started."""
        package = Path(evenkeel.__file__).parent
        files = [path for folder in ("", "sdk", "runner") for path in (package / folder).glob("*.py")]
        newest = max(path.stat().st_mtime_ns for path in files)
        key = f"{sys.executable}:{evenkeel.__version__}:{newest}:{self._preload}"
        return f"{account.uid if account.uid is not None else 'own'}-{hashlib.sha256(key.encode()).hexdigest()[:8]}"
