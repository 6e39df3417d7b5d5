"""Runs a program within a time and a size, what it says going to a log of bounded length."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import stat
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from evenkeel.preparation.errors import PreparationError
from evenkeel.program_output import shown_lines
from evenkeel.runner.files import create_private
from evenkeel.runner.last_words import is_noise
from evenkeel.runner.redaction import Redactor
from evenkeel.runner.trees import Bounds, OutOfBounds, remove_tree, walk

LOOK_S = 1.0
LOG_BYTES = 4 << 20
COUNTS = 5
MAX_FILES, MAX_COUNTING_S, MAX_CLEARING_S = 5_000_000, 60.0, 120.0
TAIL_BYTES = 16 << 10


@dataclass
class Work:
    """One preparation: where it happens, until when, and how much it may leave there."""

    directory: Path
    deadline: float  # monotonic
    max_bytes: int
    redactor: Redactor = field(default_factory=lambda: Redactor(()))
    timeout_s: float = 0.0
    _log_bytes: int = 0
    _log_fd: int = -1
    _tail: bytes = b""

    def say(self, text: str) -> None:
        self._write(self.redactor.clean_text(text.rstrip("\n") + "\n").encode())

    def _write(self, data: bytes) -> None:
        if self._log_fd < 0:
            self._log_fd = create_private(self.directory / "log")
        self._tail = (self._tail + data)[-TAIL_BYTES:]
        data = data[: max(0, LOG_BYTES - self._log_bytes)]
        self._log_bytes += len(data)
        while data:
            data = data[os.write(self._log_fd, data) :]

    def run(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path,
        what: str,
        fault_in: Callable[[str], str] = lambda output: "",
    ) -> None:
        """PreparationError where it fails, takes too long, or leaves more than it may. `fault_in` finds what matters in
        the end of a failed program's output; where it finds nothing, the last line is said."""
        process = subprocess.Popen(
            command,
            env=dict(env),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            process_group=0,
        )
        self._tail = b""
        try:
            self._follow(process, what)
        finally:
            _kill_group(process)
        if process.returncode != 0:
            said = fault_in(self._tail.decode(errors="replace")) or self._last_words()
            raise PreparationError(f"{what} failed with exit code {process.returncode}{said and ': ' + said}")

    def _last_words(self) -> str:
        """The last line that the program said, or that in which it names its fault."""
        lines = [line.strip() for line in shown_lines(self._tail) if not is_noise(line)]
        faults = [line for line in lines if line.lower().startswith(("fatal:", "error:"))]
        return (faults or lines or [""])[-1][:300]

    def _follow(self, process: subprocess.Popen[bytes], what: str) -> None:
        assert process.stdout is not None
        stream, look_at = self.redactor.stream(), time.monotonic() + LOOK_S
        os.set_blocking(process.stdout.fileno(), False)
        with process.stdout, selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while True:
                if selector.select(LOOK_S):
                    data = process.stdout.read(1 << 16)
                    if data == b"":
                        break
                    self._write(stream.feed(data or b""))
                if time.monotonic() >= look_at:
                    self._check(what)
                    look_at = time.monotonic() + LOOK_S
            self._write(stream.close())
        try:
            process.wait(max(0.1, self.deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise self._too_long(what) from None
        self._check(what)

    def _check(self, what: str) -> None:
        if time.monotonic() > self.deadline:
            raise self._too_long(what)
        if directory_bytes(self.directory) > self.max_bytes:
            raise PreparationError(f"{what} needs more than the {self.max_bytes >> 20:,} MiB that it may have")

    def _too_long(self, what: str) -> PreparationError:
        return PreparationError(f"{what} took longer than the {self.timeout_s:g} s that it may take")


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def directory_bytes(directory: Path) -> int:
    """Bytes of the files below, each counted as often as it is named; what vanishes meanwhile counts nothing.
    PreparationError where there are too many to be counted."""
    for _ in range(COUNTS):
        with contextlib.suppress(OSError):  # something was moved meanwhile
            return _count_bytes(directory)
    return 0


def _count_bytes(directory: Path) -> int:
    total = 0

    def visit(above: int, name: str) -> bool:
        nonlocal total
        try:
            found = os.stat(name, dir_fd=above, follow_symlinks=False)
        except OSError:
            return False
        total += found.st_size if stat.S_ISREG(found.st_mode) else 0
        return stat.S_ISDIR(found.st_mode)

    top = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        walk(top, Bounds(MAX_FILES, MAX_COUNTING_S), visit, strict=False)
    except OutOfBounds:
        text = f"it has more files than can be counted ({MAX_FILES:,}, within {MAX_COUNTING_S:g} s)"
        raise PreparationError(text) from None
    finally:
        os.close(top)
    return total


def clear(path: Path) -> None:
    """So that nothing is there; PreparationError where that cannot be."""
    try:
        removed = remove_tree(path, max_entries=MAX_FILES, max_s=MAX_CLEARING_S)
    except OSError as error:
        raise PreparationError(f"{path.name} cannot be removed: {error.strerror or error}") from None
    if not removed:
        raise PreparationError(f"{path.name} has more in it than is removed within {MAX_CLEARING_S:g} s")
