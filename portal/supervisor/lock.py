"""One supervisor per data directory. The kernel releases the lock with its holder, so no lock is ever stale."""

import fcntl
import os
from pathlib import Path
from typing import IO

from portal.config.setup_errors import SetupError


class DirectoryLock:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[str] | None = None

    def acquire(self) -> int | None:
        """Take the lock; returns the process that held it and died without cleaning up, if any."""
        self._file = self._path.open("a+")
        self._file.seek(0)
        previous = self._file.read().strip()
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            raise SetupError(
                f"Another supervisor (process {previous or 'unknown'}) runs on {self._path.parent.parent};"
                " stop it or choose another EVENKEEL_DATA."
            ) from None
        self._write(str(os.getpid()))
        return int(previous) if previous.isdigit() else None

    def release(self) -> None:
        if self._file is not None:
            self._write("")
            self._file.close()
            self._file = None

    def _write(self, content: str) -> None:
        assert self._file is not None
        self._file.truncate(0)
        self._file.write(content)
        self._file.flush()
