"""Follows `sdk/rank<k>.jsonl`: what the SDK has said so far."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evenkeel.runner.files import open_plain, parse_json

SPEED_WINDOW_S = 2.0
MAX_METRICS = 200
MAX_READ_BYTES, MAX_LINE_NODES = 1 << 20, 10_000
MAX_LINKS = 20


@dataclass(slots=True)
class Heard:
    """The state of the run as far as its program tells it."""

    contact: bool = False
    ready_at: float | None = None
    step: int | None = None
    checkpoint: dict[str, Any] | None = None
    done: bool = False
    stopped: bool = False
    errors: list[dict[str, Any]] = field(default_factory=list)
    metrics: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=4 * MAX_METRICS))
    notices: deque[str] = field(default_factory=lambda: deque(maxlen=50))
    links: dict[str, str] = field(default_factory=dict)  # name -> address
    _marks: deque[tuple[float, int]] = field(default_factory=deque)

    def take(self, line: dict[str, Any]) -> bool:
        """True for what the portal should hear of at once."""
        kind, at = line.get("kind"), float(line.get("t") or 0.0)
        if kind == "ready":
            self.ready_at, self.step = at, int(line["step"])
            self._marks.append((at, self.step))
        elif kind == "step":
            self._take_step(at, line)
        elif kind == "checkpoint":
            self.checkpoint = {key: line[key] for key in ("step", "path", "bytes", "seconds")} | {"at": at}
        elif kind == "notice":
            self.notices.append(str(line["text"])[:2000])
        elif kind == "link":
            return self._take_link(str(line["name"])[:60], str(line["url"])[:1_000])
        elif kind == "error":
            self.errors.append(line)
        elif kind in ("done", "stopped"):
            self.step = int(line["step"])
            self.done, self.stopped = self.done or kind == "done", self.stopped or kind == "stopped"
        return kind in ("ready", "checkpoint")

    def _take_step(self, at: float, line: dict[str, Any]) -> None:
        self.step = int(line["step"])
        self._marks.append((at, self.step))
        while len(self._marks) > 2 and at - self._marks[1][0] >= SPEED_WINDOW_S:
            self._marks.popleft()
        since_at, since_step = self._marks[0]
        speed = (self.step - since_step) / (at - since_at) if at > since_at else None
        named = {name: value for name, value in dict(line.get("metrics") or {}).items() if name not in ("step", "at")}
        self.metrics.append({"step": self.step, "at": at, "steps_per_s": speed and round(speed, 4)} | named)

    def _take_link(self, name: str, url: str) -> bool:
        """Whether it is news."""
        if self.links.get(name) == url or (name not in self.links and len(self.links) >= MAX_LINKS):
            return False
        self.links[name] = url
        return True

    def take_metrics(self) -> list[dict[str, Any]]:
        """What came since the last time, thinned to what one report carries; the newest stays."""
        collected = list(self.metrics)
        self.metrics.clear()
        stride = -(-len(collected) // MAX_METRICS) or 1
        return collected[::-1][::stride][::-1]

    def take_notices(self) -> list[str]:
        collected = list(self.notices)
        self.notices.clear()
        return collected


class Listener:
    def __init__(self, directory: Path, ranks: int, first_rank: int = 0) -> None:
        ours = range(first_rank, first_rank + ranks)
        self._files = {rank: directory / f"rank{rank}.jsonl" for rank in ours}
        self._offsets = dict.fromkeys(self._files, 0)
        self.heard = Heard()

    def listen(self) -> bool:
        """Takes in what was appended; True if something of it is urgent. Lines that make no sense are skipped:
        the file belongs to the program."""
        urgent = False
        for rank, path in self._files.items():
            for line in self._new_lines(rank, path):
                try:
                    content = parse_json(line, MAX_LINE_NODES, nan_as_null=True)
                    if rank == 0 or content["kind"] == "error":
                        urgent |= self.heard.take(content | {"rank": rank})
                except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
                    continue
        return urgent

    def _new_lines(self, rank: int, path: Path) -> list[bytes]:
        try:
            with open_plain(path) as file:
                self.heard.contact = True
                file.seek(self._offsets[rank])
                data = file.read(MAX_READ_BYTES)
        except OSError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        if not whole and len(data) == MAX_READ_BYTES:  # no line of ours is as long: what comes after it counts again
            whole = data
        self._offsets[rank] += len(whole)
        return whole.split(b"\n")[:-1]
