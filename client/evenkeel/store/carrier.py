"""The other end of `python -m evenkeel.store`: asks, waits no longer than it wants to, and ends the process.

A driver that hangs, leaks or crashes costs the process, not who asks; and none of it is in a program's memory.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from evenkeel.store import ERRORS, StoreError

STALL_S = 120.0  # without a sign of life it hangs
MAX_LINE = 1 << 20
#: Of our own environment only these reach the process: how to find the way out, and what a site gives its machines.
_PASSED = ("PATH", "HOME", "LANG", "SSL_CERT_FILE", "SSL_CERT_DIR", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY",
           "LD_LIBRARY_PATH")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Address:
    """Where a store is, for one job's `prefix`; `options` are the driver's, credentials among them."""

    url: str
    prefix: str
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)


class Carrier:
    """`address` None: of data, where each question says where it lies."""

    def __init__(self, address: Address | None, stall_s: float = STALL_S) -> None:
        self._stall_s, self._buffer = stall_s, b""
        self.progress: dict[str, Any] = {}  # the last sign of life
        kept = {name: os.environ[name] for name in _PASSED if name in os.environ}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "evenkeel.store"],
            env=kept,
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self.pid = self._process.pid
        self.idle, self._heard_at = True, time.monotonic()
        opening = {"url": address.url, "options": dict(address.options), "prefix": address.prefix} if address else {}
        self._send(opening)

    def ask(self, what: str, **more: Any) -> None:
        """Begins; `poll` or `wait` give the answer."""
        self.idle, self._heard_at, self.progress = False, time.monotonic(), {}
        self._send({"ask": what, **more})

    def poll(self, timeout_s: float = 0.0) -> dict[str, Any] | None:
        """The answer, where there is one by now. Raises StoreError where it says so, hangs, or is gone; after the last
        two the carrier is closed."""
        stdout = self._process.stdout
        if self.idle or stdout is None:
            return None
        ready, _, _ = select.select([stdout], [], [], timeout_s)
        if not ready:
            if time.monotonic() - self._heard_at > self._stall_s:
                self.close()
                raise StoreError(f"the store has not answered for {self._stall_s:g} s")
            return None
        data = os.read(stdout.fileno(), 1 << 16)
        if not data or len(self._buffer) > MAX_LINE:
            self.close()
            raise StoreError("the process that speaks to the store has ended")
        self._heard_at = time.monotonic()
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            answer: dict[str, Any] = json.loads(line)
            if "ok" not in answer:
                self.progress = answer
                continue
            self.idle = True
            if not answer["ok"]:
                raise ERRORS.get(answer.get("kind", ""), StoreError)(str(answer["error"]))
            return answer
        return None

    def wait(self, timeout_s: float, given_up: Callable[[], bool] = lambda: False) -> dict[str, Any]:
        """Raises StoreError where it takes longer, or when waiting is given up; the carrier is closed then."""
        give_up_at = time.monotonic() + timeout_s
        while (answer := self.poll(min(0.1, max(0.0, give_up_at - time.monotonic())))) is None:
            if given_up() or time.monotonic() >= give_up_at:
                self.close()
                raise StoreError(f"it took longer than {timeout_s:g} s" if not given_up() else "it was given up")
        return answer

    @property
    def open(self) -> bool:
        return self._process.stdin is not None and not self._process.stdin.closed

    def close(self) -> None:
        """Ends the process at once: what it was about to upload has no marker, what it was about to fetch no name."""
        self.idle = True
        with contextlib.suppress(OSError):
            self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10.0)

    def _send(self, message: dict[str, Any]) -> None:
        try:
            stdin = self._process.stdin
            if stdin is not None:
                stdin.write(json.dumps(message).encode() + b"\n")
                stdin.flush()
        except OSError as error:
            self.close()
            raise StoreError("the process that speaks to the store has ended") from error


def ask_once(address: Address, timeout_s: float, what: str, **more: Any) -> dict[str, Any]:
    """One question by a process of its own."""
    carrier = Carrier(address, stall_s=timeout_s)
    try:
        carrier.ask(what, **more)
        return carrier.wait(timeout_s)
    finally:
        carrier.close()
