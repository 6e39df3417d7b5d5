"""Starts the parts in order, restarts those that die, and stops them in reverse. Training runners are not its children:
they outlive it, and the executor finds them again."""

import contextlib
import logging
import shutil
import threading
import time
from collections.abc import Callable
from typing import Protocol

import psutil

from portal.config.layout import MINIMUM_FREE_BYTES, Layout
from portal.config.setup_errors import SetupError
from portal.supervisor.child import Backoff, Child, stop_signals_raise
from portal.supervisor.lock import DirectoryLock

logger = logging.getLogger("evenkeel.supervisor")

TICK_S = 0.1
HOUSEKEEPING_EVERY_S = 10.0


class Part(Protocol):
    name: str

    def start(self) -> None: ...
    def alive(self) -> bool: ...
    def stop(self) -> None: ...


class Server(Part, Protocol):
    def adopt(self) -> bool: ...


class Kept:
    """A part, and when it may be restarted."""

    def __init__(self, part: Part) -> None:
        self.part = part
        self.backoff = Backoff()
        self._due: float | None = None

    def tend(self) -> None:
        if self._due is None:
            if not self.part.alive():
                self._schedule("stopped unexpectedly")
        elif time.monotonic() >= self._due:
            self._due = None
            try:
                self.part.start()
            except (SetupError, OSError) as error:
                self._schedule(f"did not start ({error})")
            else:
                self.backoff.started()
                logger.info("%s runs again.", self.part.name)

    def _schedule(self, what: str) -> None:
        delay = self.backoff.next_delay_s()
        self._due = time.monotonic() + delay
        logger.warning("%s %s; starting it again in %.1f s.", self.part.name, what, delay)


class Supervisor:
    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._lock = DirectoryLock(layout.run / "supervisor.lock")
        self._kept: list[Kept] = []
        self._exit_code: int | None = None
        self._next_housekeeping = 0.0
        self._space_low = False

    def run(self, start: Callable[["Supervisor"], None], *, interrupted: int = 0) -> int:
        """Lock the directory, call `start`, watch until a signal or `finish`, stop everything. Returns the exit status,
        which is `interrupted` after a signal."""
        self._layout.prepare()
        previous = self._lock.acquire()
        if previous is not None:
            logger.info("Taking over from process %d, which is gone.", previous)
        with stop_signals_raise() as ignore_signals:
            try:
                start(self)
                self._watch()
            except KeyboardInterrupt:
                logger.info("Stopping the control plane; training continues.")
                self._exit_code = interrupted
            finally:
                ignore_signals()
                self._stop()
                self._lock.release()
        return self._exit_code or 0

    def finish(self, exit_code: int) -> None:
        """Request an orderly shutdown, from any thread."""
        self._exit_code = exit_code

    def bring_up(self, server: Server) -> str:
        """A server that is still running is adopted as it is."""
        began = time.monotonic()
        adopted = server.adopt()
        self._kept.append(Kept(server))
        if not adopted:
            server.start()
        return f"{'found running' if adopted else 'started'} in {time.monotonic() - began:.1f} s"

    def launch(self, part: Part) -> None:
        self._kept.append(Kept(part))
        part.start()

    def tend(self) -> None:
        for kept in self._kept:
            kept.tend()

    def wait_for(self, child: Child, ready: Callable[[], bool], timeout_s: float) -> None:
        """Wait for `ready`, and restart what dies meanwhile, a limited number of times."""
        deadline = time.monotonic() + timeout_s
        failures = next(kept.backoff for kept in self._kept if kept.part is child)
        while not ready():
            self.tend()
            if failures.failures >= 3 or time.monotonic() > deadline:
                raise SetupError(f"The {child.name} process does not start; see {child.log}: {child.last_words()}")
            time.sleep(TICK_S)

    def _watch(self) -> None:
        while self._exit_code is None:
            self.tend()
            if time.monotonic() >= self._next_housekeeping:
                self._next_housekeeping = time.monotonic() + HOUSEKEEPING_EVERY_S
                self._housekeep()
            time.sleep(TICK_S)

    def _housekeep(self) -> None:
        for kept in self._kept:
            if isinstance(kept.part, Child):
                kept.part.rotate_log()
        with contextlib.suppress(OSError):
            low = shutil.disk_usage(self._layout.servers).free < MINIMUM_FREE_BYTES
            if low and not self._space_low:
                logger.warning("The disk of %s is nearly full: less than 200 MB are free.", self._layout.servers)
            self._space_low = low

    def _stop(self) -> None:
        for kept in reversed(self._kept):
            try:
                kept.part.stop()
            except (OSError, psutil.Error):
                logger.exception("%s could not be stopped.", kept.part.name)
        self._kept.clear()


def in_background(task: Callable[[], None]) -> None:
    threading.Thread(target=task, daemon=True).start()
