"""Keeps what workers print: one log per rank, rotated by size."""

from __future__ import annotations

import os
from pathlib import Path

from evenkeel.runner.redaction import Redactor

READ_BYTES = 1 << 16
KEPT = 2  # .1 and .2
#: Of what was written last, to be read for what the program died of: a long traceback and what follows it.
TAIL_BYTES = 1 << 14


class RotatingLog:
    def __init__(self, path: Path, max_bytes: int) -> None:
        self._path, self._max_bytes = path, max_bytes
        self._open()

    def _open(self) -> None:
        self._fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o640)
        self._size = os.fstat(self._fd).st_size

    def write(self, data: bytes) -> None:
        try:
            if self._size and self._size + len(data) > self._max_bytes:
                self._rotate()
            self._size += len(data)
            while data:
                data = data[os.write(self._fd, data) :]
        except OSError:
            pass  # a full disk costs log lines, never the training

    def _rotate(self) -> None:
        os.close(self._fd)
        for number in range(KEPT, 0, -1):
            older = self._path.with_name(f"{self._path.name}.{number}")
            newer = self._path.with_name(f"{self._path.name}.{number - 1}") if number > 1 else self._path
            if newer.exists():
                newer.replace(older)
        self._open()

    def close(self) -> None:
        os.close(self._fd)


class Output:
    """The reading end of one worker's stdout and stderr."""

    def __init__(self, log: Path, max_bytes: int, redactor: Redactor) -> None:
        self._redacted = redactor.stream()
        self.read_fd, self.write_fd = os.pipe()
        os.set_blocking(self.read_fd, False)
        self._log = RotatingLog(log, max_bytes)
        self.tail = b""
        self.open = True

    def close_write(self) -> None:
        os.close(self.write_fd)

    def begin(self, line: str) -> None:
        """Words of ours before the worker's."""
        self._log.write(line.encode())

    def pump(self) -> bool:
        """Moves what is there into the log; False once the other side is closed by everybody."""
        try:
            data = os.read(self.read_fd, READ_BYTES)
        except BlockingIOError:
            return True
        if data:
            self._keep(self._redacted.feed(data))
            return True
        self.close()
        return False

    def _keep(self, data: bytes) -> None:
        self._log.write(data)
        self.tail = (self.tail + data)[-TAIL_BYTES:]

    def drain(self) -> None:
        """The rest of the pipe's contents, even if a process still holds its other end."""
        while self.open:
            try:
                data = os.read(self.read_fd, READ_BYTES)
            except BlockingIOError:
                break
            if not data:
                break
            self._keep(self._redacted.feed(data))
        self.close()

    def close(self) -> None:
        if self.open:
            self.open = False
            self._keep(self._redacted.close())
            os.close(self.read_fd)
            self._log.close()
