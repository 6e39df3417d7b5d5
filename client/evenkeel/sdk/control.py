"""`sdk/control`: two little-endian int64 that the runner and the ranks share, request and stop_at."""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path

SIZE = 16
NONE, CHECKPOINT_AND_STOP = 0, 1
_INT64 = struct.Struct("<q")


class Control:
    def __init__(self, path: Path) -> None:
        fd = os.open(path, os.O_RDWR)
        try:
            self._map = mmap.mmap(fd, SIZE)
        finally:
            os.close(fd)

    @classmethod
    def create(cls, path: Path) -> Control:
        path.write_bytes(_INT64.pack(NONE) + _INT64.pack(-1))
        return cls(path)

    @property
    def request(self) -> int:
        return int(_INT64.unpack_from(self._map, 0)[0])

    @request.setter
    def request(self, value: int) -> None:
        _INT64.pack_into(self._map, 0, value)

    @property
    def stop_at(self) -> int | None:
        value = int(_INT64.unpack_from(self._map, 8)[0])
        return None if value < 0 else value

    @stop_at.setter
    def stop_at(self, step: int) -> None:
        _INT64.pack_into(self._map, 8, step)

    def close(self) -> None:
        self._map.close()
