"""`sdk/control`: little-endian int64s that the runner and the ranks share.

The runner writes `request` and `total_wanted`, rank 0 `stop_at` and `total`, which all ranks go by.
"""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path

SIZE = 32
NONE, CHECKPOINT_AND_STOP = 0, 1
_INT64 = struct.Struct("<q")


class Control:
    def __init__(self, path: Path) -> None:
        fd = os.open(path, os.O_RDWR)
        try:
            self._map = mmap.mmap(fd, 0)  # a runner of an earlier version makes a shorter file
        finally:
            os.close(fd)

    @classmethod
    def create(cls, path: Path) -> Control:
        path.write_bytes(_INT64.pack(NONE) + 3 * _INT64.pack(-1))
        return cls(path)

    @property
    def request(self) -> int:
        return int(_INT64.unpack_from(self._map, 0)[0])

    @request.setter
    def request(self, value: int) -> None:
        _INT64.pack_into(self._map, 0, value)

    @property
    def stop_at(self) -> int | None:
        return self._get(8)

    @stop_at.setter
    def stop_at(self, step: int) -> None:
        _INT64.pack_into(self._map, 8, step)

    @property
    def total_wanted(self) -> int | None:
        return self._get(16)

    @total_wanted.setter
    def total_wanted(self, steps: int) -> None:
        _INT64.pack_into(self._map, 16, steps)

    @property
    def total(self) -> int | None:
        return self._get(24)

    @total.setter
    def total(self, steps: int) -> None:
        _INT64.pack_into(self._map, 24, steps)

    def _get(self, offset: int) -> int | None:
        if offset >= len(self._map):
            return None
        value = int(_INT64.unpack_from(self._map, offset)[0])
        return None if value < 0 else value

    def close(self) -> None:
        self._map.close()
