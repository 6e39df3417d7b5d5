"""Follows a rank's log while it is written, across rotation.

The part that is being read stays open: it survives renaming, can be read to its end after removal, and cannot be
confused with a new part.
"""

from __future__ import annotations

import os

from portal.storage.log_files import Part, RunLog


class Follower:
    """A reader's position in the log of one rank of a run."""

    def __init__(self) -> None:
        self._file: int | None = None
        self._epoch, self._inode, self._at = -1, -1, 0

    def start(self, log: RunLog, offset: int) -> None:
        """Start `offset` bytes after the beginning of the present log."""
        for part in log.parts:
            if offset < part.size or part is log.parts[-1]:
                self._enter(log, part, min(offset, part.size))
                return
            offset -= part.size

    def read(self, log: RunLog, limit: int) -> bytes:
        """The next bytes; empty if there are none yet. `log` is a fresh listing of the parts."""
        while True:
            # looked up first: the part that is read to its end below cannot have grown since
            following = self._following(log)
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
        """The part after ours; if ours was removed, the oldest one left of our launch, or of a later one."""
        places = [number for number, part in enumerate(log.parts) if part.inode == self._inode]
        if places and self._file is not None:
            later = log.parts[places[0] + 1 :]
        else:
            later = [part for part in log.parts if part.epoch >= self._epoch]
        return later[0] if later else None

    def _enter(self, log: RunLog, part: Part, at: int) -> bool:
        """False if the part was removed since `log` was listed: a fresh listing tells what is next."""
        file = log.open_part(part)
        self.close()
        self._file, self._epoch, self._inode, self._at = file, part.epoch, part.inode, at
        return file is not None
