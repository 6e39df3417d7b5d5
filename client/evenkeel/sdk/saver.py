"""When a checkpoint is due, what goes into it, and the thread that writes it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from evenkeel.sdk.checkpoints import CheckpointStore
from evenkeel.sdk.lines import Lines
from evenkeel.sdk.settings import Settings
from evenkeel.sdk.state import CheckpointError, copy_state


class Saver:
    """Rank 0's side of checkpoints. Interval checkpoints are copied and written by a thread of their own;
    those on request and at the end, and the first of a process, are written before `save` returns."""

    def __init__(self, store: CheckpointStore, settings: Settings, lines: Lines | None) -> None:
        self._store, self._settings, self._lines = store, settings, lines
        self._objects: dict[str, Any] = {}
        self._thread: threading.Thread | None = None
        self._first = True
        self.last_step: int | None = None

    def register(self, objects: dict[str, Any]) -> None:
        self._objects |= objects

    @property
    def has_objects(self) -> bool:
        return bool(self._objects)

    def interval_due(self, step: int) -> bool:
        """Whether `step` reached the next multiple of the interval."""
        every = self._settings.checkpoint_every
        return every > 0 and step // every > (self.last_step or 0) // every

    def save(self, step: int, reason: str, state: Callable[[], Any]) -> None:
        self.wait()
        content = {"state": state(), "objects": {name: item.state_dict() for name, item in self._objects.items()}}
        first, self._first = self._first, False
        self.last_step = step
        if first or reason != "interval":
            self._write(step, reason, content)
            return
        content = copy_state(content)
        self._thread = threading.Thread(target=self._write_quietly, args=(step, content), name="checkpoint")
        self._thread.start()

    def wait(self) -> None:
        if self._thread is not None:
            self._thread.join()

    def _write_quietly(self, step: int, content: Any) -> None:
        try:
            self._write(step, "interval", content)
        except CheckpointError as error:  # training goes on: the next one may succeed
            if self._lines:
                self._lines.say("notice", text=str(error))

    def _write(self, step: int, reason: str, content: Any) -> None:
        saved = self._store.save(
            step,
            content,
            epoch=self._settings.epoch,
            world_size=self._settings.world_size,
            batch_size=self._settings.batch_size,
        )
        if self._lines:
            self._lines.say(
                "checkpoint",
                step=step,
                path=saved.path,
                bytes=saved.bytes,
                seconds=round(saved.seconds, 4),
                reason=reason,
            )


def unwrapped(item: Any) -> Any:
    """The model inside DistributedDataParallel, so that a checkpoint fits any number of ranks."""
    return item.module if type(item).__name__ == "DistributedDataParallel" else item
