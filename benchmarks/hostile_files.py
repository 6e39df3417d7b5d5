"""Random files and trees that a job may leave in the place of those that the portal reads or removes."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from evenkeel.runner.trees import remove_tree

#: Below a job's directory; `{run}` and `{epoch}` are its own.
PLACES = (
    "runs/{run}/{epoch}/sdk",
    "runs/{run}/{epoch}/sdk/rank0.jsonl",
    "runs/{run}/{epoch}/spool",
    "runs/{run}/{epoch}/spool/7.json",
    "runs/{run}/{epoch}/spool/8.json",
    "runs/{run}/{epoch}/secrets",
    "runs/{run}/{epoch}/exit.json",
    "runs/{run}/{epoch}/runner.json",
    "runs/{run}/{epoch}/launch.json",
    "runs/{run}/{epoch}/stop",
    "runs/{run}/{epoch}/claim/job",
    "runs/{run}/{epoch}/node-x",
    "runs/{run}/{epoch}/logs",
    "runs/{run}/{epoch}/logs/rank0.log",
    "runs/{run}/{epoch}/logs/runner.log",
    "runs/{run}/listing",
    "runs/{run}/listing/result.json",
    "runs/{run}/artifacts",
    "runs/{run}/artifacts/model.bin",
    "runs/{run}/999999999",
    "checkpoints",
    "checkpoints/step-5/manifest.json",
    "code/tree",
    "work",
)
_TEXTS = (
    b"[" * 100_000,
    b"[" + b"[]," * 200_000 + b"[]]",
    b'{"a":' * 5_000,
    b'{"reason": "done", "step": 1' + b"0" * 4_000 + b"}",
    b'{"reason": ["done"], "step": -1e999, "message": {"a": NaN}, "nodes_fault": "yes"}',
    b'{"reason": "done", "message": "\\ud800\\u0000", "exit_code": true, "signal": 1.5}',
    b'{"pid": 1, "start_ticks": 1, "boot_id": "x"}',
    b'{"pid": 99999999999999999999, "start_ticks": NaN, "boot_id": []}',
    b'{"state": "done", "attempt": 1, "detail": {"files": [5], "left_out": 0}}',
    b'{"state": "done", "attempt": 1, "detail": {"files": [], "left_out": -5}}',
    b'{"epoch": 1, "seq": 4611686018427387904, "sent_at": 1e308, "metrics": [[]]}',
    b'{"kind": "step", "t": 1e999, "step": 99999999999999999999}\n' * 2_000,
    b"\xff\xfe\x00" * 1_000,
    b"",
    json.dumps({"notices": ["x" * 100] * 90, "epoch": 1, "seq": 3, "sent_at": 1.0}).encode(),
)


class Hostile:
    """Called as the account that the job runs as. The same seed leaves the same."""

    def __init__(self, seed: int, depth: int = 2_000, width: int = 3_000) -> None:
        self._random, self._depth, self._width = random.Random(seed), depth, width
        self.kinds: dict[str, Callable[[Path], None]] = {
            "deep": self.deep,
            "wide": self.wide,
            "text": self.text,
            "sparse": self.sparse,
            "pipe": lambda path: os.mkfifo(path),
            "socket": self.socket,
            "device": self.device,
            "link": lambda path: path.symlink_to("/etc/shadow"),
            "loop": lambda path: path.symlink_to(path.name),
            "closed": self.closed,
            "names": self.names,
            "changing": self.changing,
        }
        self._changing: list[Path] = []

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """Inside, what is of the kind `changing` changes all the time, by a thread."""
        leave = threading.Event()
        thread = threading.Thread(target=self._change_all, args=(leave,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            leave.set()
            thread.join()

    def put(self, path: Path, kind: str | None = None) -> str:
        """Replaces what is there; says by what."""
        chosen = kind or self._random.choice(sorted(self.kinds))
        with contextlib.suppress(OSError):  # what is above it may have been replaced before
            path.parent.mkdir(parents=True, exist_ok=True)
            remove_tree(path)
            self.kinds[chosen](path)
        return chosen

    def deep(self, path: Path) -> None:
        path.mkdir()
        current = os.open(path, os.O_RDONLY)
        for _ in range(self._depth):
            os.mkdir("d", dir_fd=current)
            below = os.open("d", os.O_RDONLY, dir_fd=current)
            os.close(current)
            current = below
        os.close(current)

    def wide(self, path: Path) -> None:
        path.mkdir()
        for number in range(self._width):
            (path / f"{number}.json").write_bytes(self._random.choice(_TEXTS)[:1_000])

    def text(self, path: Path) -> None:
        path.write_bytes(self._random.choice(_TEXTS))

    def sparse(self, path: Path) -> None:
        with path.open("wb") as file:
            file.truncate(1 << 40)

    def socket(self, path: Path) -> None:
        above = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
        try:
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(f"/proc/self/fd/{above}/{path.name}")
        finally:
            os.close(above)

    def device(self, path: Path) -> None:
        """Which only root can make."""
        try:
            os.mknod(path, 0o600 | 0o020000, os.makedev(1, 5))
        except PermissionError:
            self.text(path)

    def closed(self, path: Path) -> None:
        (path / "below").mkdir(parents=True)
        (path / "below" / "file").write_bytes(b"x")
        (path / "below").chmod(0)
        path.chmod(0)

    def names(self, path: Path) -> None:
        path.mkdir()
        for name in (b"\xff\xfe", b"1\xc2\xb2.json", b"-rf", b" ", b"a\nb", b"9" * 200 + b".json", b"node-\xff"):
            fd = os.open(os.fsencode(path) + b"/" + name, os.O_CREAT | os.O_WRONLY, 0o600)
            os.close(fd)

    def changing(self, path: Path) -> None:
        """Another thing each time that it is looked at; see `at_work`."""
        self.text(path)
        self._changing.append(path)

    def _change_all(self, leave: threading.Event) -> None:
        turns = (self.text, self.longer, self.kinds["link"], self.kinds["pipe"], self.names, self.sparse)
        for turn in itertools.cycle(turns):
            for path in self._changing:
                with contextlib.suppress(OSError):  # it, or what is above it, has been removed meanwhile
                    self._swap(path, turn)
            if leave.wait(0.001):
                return

    def _swap(self, path: Path, turn: Callable[[Path], None]) -> None:
        """At once for files, so that a reader has one in its hands that is no longer there."""
        draft = path.with_name(f"{path.name}.draft")
        remove_tree(draft)
        turn(draft)
        if draft.is_dir() or path.is_dir():
            remove_tree(path)
        draft.replace(path)

    def longer(self, path: Path) -> None:
        path.write_bytes(b"[" + b"[]," * 300_000)
        with path.open("ab") as file:
            file.write(b"[]]")
