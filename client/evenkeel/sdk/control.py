"""`sdk/control`: little-endian int64s that the runner and the ranks share.

The runner writes `request` and `total_wanted`, rank 0 `stop_at` and `total`, which all ranks go by.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
from pathlib import Path
from typing import Any

from evenkeel.sdk.settings import Settings

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

    def refresh(self) -> None:
        """Before each step: what rank 0 decided, where it does not reach this node by itself."""

    def _get(self, offset: int) -> int | None:
        if offset >= len(self._map):
            return None
        value = int(_INT64.unpack_from(self._map, offset)[0])
        return None if value < 0 else value

    def close(self) -> None:
        self._map.close()


class SpanningControl(Control):
    """For ranks on several nodes, of which only those of a node share the file: rank 0 also tells the process group's
    store, and waits for its answer, before it enters the step; who is elsewhere asks it after that step. So all of
    them know by then, as they do on one node. Without a process group the ranks do not wait for each other, and the
    runners bring the file of each node up to date within a second."""

    def __init__(self, path: Path, *, tells: bool, asks: bool) -> None:
        super().__init__(path)
        self._tells, self._asks = tells, asks

    @property
    def stop_at(self) -> int | None:
        return self._get(8)

    @stop_at.setter
    def stop_at(self, step: int) -> None:
        _INT64.pack_into(self._map, 8, step)
        self._tell("stop_at", step)

    @property
    def total(self) -> int | None:
        return self._get(24)

    @total.setter
    def total(self, steps: int) -> None:
        _INT64.pack_into(self._map, 24, steps)
        self._tell("total", steps)

    def _tell(self, name: str, value: int) -> None:
        store = process_group_store() if self._tells else None
        if store is not None:  # `add` is answered, `set` is not; the counter begins at 0
            store.add(f"evenkeel/{name}", value + 1 - store.add(f"evenkeel/{name}", 0))
            store.add("evenkeel/news", 1)

    def refresh(self) -> None:
        store = process_group_store() if self._asks else None
        if store is None or store.add("evenkeel/news", 0) == 0:
            return
        for name, offset in (("stop_at", 8), ("total", 24)):
            value = store.add(f"evenkeel/{name}", 0) - 1
            if value >= 0:
                _INT64.pack_into(self._map, offset, value)


def open_control(path: Path, settings: Settings) -> Control:
    if not settings.spans_nodes:
        return Control(path)
    elsewhere = settings.rank != settings.local_rank  # rank 0 is on the first node
    return SpanningControl(path, tells=settings.rank == 0, asks=elsewhere)


def process_group_store() -> Any:
    """None where there is no process group (yet)."""
    dist = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_available() or not dist.is_initialized():
        return None
    return dist.distributed_c10d._get_default_store()
