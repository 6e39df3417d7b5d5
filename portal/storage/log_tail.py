"""Reads a rank's log on as it is written, across rotation.

The part that is being read is kept open: renamed it is still the same file, removed it can still be read to its end,
and no new part can be mistaken for it.
"""

from __future__ import annotations

import os

from portal.storage.log_files import Part, RunLog


class Follower:
    """Where a reader is in the log of one rank of a run."""

    def __init__(self) -> None:
        self._file: int | None = None
        self._epoch, self._inode, self._at = -1, -1, 0

    def start(self, log: RunLog, offset: int) -> None:
        """Begin `offset` bytes after the beginning of what there is now."""
        for part in log.parts:
            if offset < part.size or part is log.parts[-1]:
                self._enter(log, part, min(offset, part.size))
                return
            offset -= part.size

    def read(self, log: RunLog, limit: int) -> bytes:
        """What comes next; nothing where there is no more yet. `log` is a fresh look at the parts."""
        while True:
            following = self._following(log)  # looked up first: what is read to its end below cannot have grown since
            data = self._read(limit)
            if data or following is None or not self._enter(log, following, 0):
                return data

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _read(self, limit: int) -> bytes:
        if self._file is None:
            return b""
        data = os.pread(self._file, limit, self._at)
        self._at += len(data)
        return data

    def _following(self, log: RunLog) -> Part | None:
        """The part after ours; the oldest that is left of our launch, or of a later one, where ours was removed."""
        places = [number for number, part in enumerate(log.parts) if part.inode == self._inode]
        if places and self._file is not None:
            later = log.parts[places[0] + 1 :]
        else:
            later = [part for part in log.parts if part.epoch >= self._epoch]
        return later[0] if later else None

    def _enter(self, log: RunLog, part: Part, at: int) -> bool:
        """False where the part was removed since `log` was made: a fresh look says what is next."""
        file = log.open_part(part)
        self.close()
        self._file, self._epoch, self._inode, self._at = file, part.epoch, part.inode, at
        return file is not None
