"""One process of the control plane (web, worker, beat), with its own session, log and pid file."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import psutil

from portal.supervisor import process

LOG_LIMIT_BYTES = 10 * 2**20
LOGS_KEPT = 3


class Child:
    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path,
        run: Path,
        logs: Path,
        stop_timeout_s: float = 15,
        nice: int = 0,
    ) -> None:
        self.name = name
        self.log = logs / f"{name}.log"
        self._command = list(command)
        self._env = dict(env)
        self._cwd = cwd
        self._note = run / f"{name}.pid"
        self._stop_timeout_s = stop_timeout_s
        self._nice = nice
        self._process: psutil.Process | None = None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def start(self) -> None:
        self.clear_leftovers()
        self.log.touch(mode=0o600)
        with self.log.open("ab") as log:
            self._process = psutil.Popen(
                self._command,
                cwd=self._cwd,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C only reaches the supervisor, which then stops everything in order
            )
        fresh = self._note.with_suffix(".new")  # no partial file is visible, even if we are killed
        fresh.write_text(f"{self._process.pid} {self._process.create_time()}")
        fresh.replace(self._note)
        self._lower_priority()

    def _lower_priority(self) -> None:
        """`nice` applies within a session only if the kernel groups by session (sched(7), autogroup)."""
        if self._nice and self._process is not None:
            with contextlib.suppress(psutil.Error, OSError):
                self._process.nice(max(self._nice, self._process.nice()))
                Path(f"/proc/{self._process.pid}/autogroup").write_text(str(self._nice))

    def alive(self) -> bool:
        return process.alive(self._process)

    def stop(self) -> None:
        if self._process is not None:
            with contextlib.suppress(psutil.NoSuchProcess):
                self._process.terminate()
            process.wait_gone(self._process, self._stop_timeout_s)
        self.clear_leftovers()
        self._process = None

    def clear_leftovers(self) -> int:
        """Kill leftovers of an earlier start: the process itself and those of its session."""
        try:
            pid, created = self._note.read_text().split()
        except (FileNotFoundError, ValueError):
            return 0
        doomed = list(_session(int(pid), float(created)))
        for member in doomed:
            with contextlib.suppress(psutil.NoSuchProcess):
                member.kill()
        for member in [*doomed, *([self._process] if self._process else [])]:
            process.wait_gone(member, 5)
        self._note.unlink()
        return len(doomed)

    def rotate_log(self) -> None:
        """Copy and truncate: the process keeps its open file, to which it appends."""
        if not self.log.exists() or self.log.stat().st_size < LOG_LIMIT_BYTES:
            return
        for number in range(LOGS_KEPT - 1, 0, -1):
            older = self.log.with_suffix(f".log.{number}")
            if older.exists():
                older.replace(self.log.with_suffix(f".log.{number + 1}"))
        newest = self.log.with_suffix(".log.1")
        newest.unlink(missing_ok=True)
        newest.touch(mode=0o600)
        newest.write_bytes(self.log.read_bytes())
        os.truncate(self.log, 0)

    def last_words(self) -> str:
        lines = self.log.read_text(errors="replace").strip().splitlines() if self.log.exists() else []
        return lines[-1] if lines else "it said nothing"


def _session(pid: int, created: float) -> Iterator[psutil.Process]:
    """The members of the session that process `pid`, started at `created`, opened."""
    with contextlib.suppress(psutil.NoSuchProcess):
        if abs(psutil.Process(pid).create_time() - created) > 1:
            return  # the pid belongs to another process by now
    for member in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
            if os.getsid(member.pid) == pid and process.alive(member):
                yield member


@contextlib.contextmanager
def stop_signals_raise() -> Iterator[Callable[[], None]]:
    """SIGTERM, SIGINT and a closed terminal raise one KeyboardInterrupt; the yielded function ignores them from then
    on."""
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup
        numbers.append(signal.SIGHUP)

    def ignore() -> None:
        for number in numbers:  # not SIG_IGN: Python would print a traceback for a pending one
            signal.signal(number, lambda number, frame: None)

    def interrupt(number: int, frame: object) -> None:
        ignore()
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield ignore
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Backoff:
    """Delay before the next attempt: short at first, then growing up to a maximum."""

    first_s, longest_s, forget_after_s = 0.2, 10.0, 30.0

    def __init__(self) -> None:
        self.failures = 0
        self._started_at = time.monotonic()

    def next_delay_s(self) -> float:
        if time.monotonic() - self._started_at > self.forget_after_s:
            self.failures = 0
        self.failures += 1
        return float(min(self.first_s * 2 ** (self.failures - 1), self.longest_s))

    def started(self) -> None:
        self._started_at = time.monotonic()
