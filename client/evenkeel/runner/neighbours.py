"""Runs on one node whose reports travel together: the portal then hears of a node at once, in one request.

The first runner that takes the name forwards for the others; when it ends, the name is free again. The name is a Unix
socket's of Linux's abstract kind, for one portal and one account: both ends make sure that the other is of their own
account, which could read each other's tokens anyhow. All on a node report at the same moments (`next_beat`). Whatever
goes wrong here, a runner sends its report itself.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import queue
import socket
import struct
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

log = logging.getLogger(__name__)

MOST = 63  # that one report carries
MOST_BYTES = 900_000  # of the whole request; the portal takes a MiB
GATHER_S = 0.3  # for those that are to come
HOLD_S = 1.5  # who was not taken along by then goes alone
WAIT_S = 12.0  # for the answer, which the carrier itself awaits 10 s
HANDSHAKE_S = 2.0
SHORTEST_S = 2.0  # intervals below it leave no time for all this
ALONE_S = 60.0  # after something went wrong
_CREDENTIALS = struct.Struct("3i")


def next_beat(now: float, interval_s: float, phase: float) -> float:
    """When to report next, of this machine's monotonic clock: one interval from now to within half of one. `phase`:
    0 to 1, the node's own, so that not all nodes report at once."""
    offset_s = phase * interval_s
    return (math.floor((now - offset_s) / interval_s + 0.5) + 1) * interval_s + offset_s


def phase_of_node() -> float:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
    except OSError:
        boot = ""
    digest = hashlib.sha256(f"{socket.gethostname()} {boot}".encode()).digest()
    return int.from_bytes(digest[:4], "big") / 2**32


@dataclass(slots=True)
class Guest:
    """A report of another runner, which waits for its answer."""

    connection: socket.socket
    run: str
    token: str
    report: dict[str, Any]

    @property
    def content(self) -> dict[str, Any]:
        return {"run": self.run, "token": self.token, "report": self.report}

    def say(self, message: dict[str, Any]) -> bool:
        try:
            self.connection.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            return False
        return True

    def answer(self, status: int, orders: Any) -> None:
        self.say({"status": status, "orders": orders})
        self.connection.close()

    def leave(self) -> None:
        """It sends its report itself."""
        self.connection.close()


class Neighbours:
    """Of one runner. Used by one thread; guests are received by another."""

    def __init__(self, api_url: str, run: str, token: str) -> None:
        where = hashlib.sha256(api_url.encode()).hexdigest()[:16]
        self._name = f"\0evenkeel-reports-{os.getuid()}-{where}"
        self._run, self._token = run, token
        self._came: queue.SimpleQueue[Guest] = queue.SimpleQueue()
        self._carries = False
        self._server: socket.socket | None = None
        self._alone_until = 0.0

    def close(self) -> None:
        """A report that waits to be forwarded is sent directly; another runner may forward the next."""
        if self._server is None:
            return
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        while not self._came.empty():
            self._came.get().leave()

    def carry(self, report: dict[str, Any]) -> tuple[int, Any] | None:
        """What the portal answered to what another carried for us: its status, 0 where it did not answer, and its
        orders. None: send it yourself, with `guests`."""
        if self._carries or time.monotonic() < self._alone_until:
            return None
        try:
            return self._hand_over(report)
        except ConnectionRefusedError:
            self._begin_to_carry()
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.info("reports go alone for %g s: %s", ALONE_S, error)
            self._alone_until = time.monotonic() + ALONE_S
        return None

    def guests(self, room: int) -> list[Guest]:
        """Who is to be carried now; `room`: bytes."""
        if not self._carries:
            return []
        time.sleep(GATHER_S)
        found: list[Guest] = []
        while len(found) < MOST:
            try:
                guest = self._came.get_nowait()
            except queue.Empty:
                break
            room -= len(json.dumps(guest.content)) + 2
            if room >= 0 and guest.say({"taken": True}):
                found.append(guest)
            else:
                guest.leave()
        return found

    def _hand_over(self, report: dict[str, Any]) -> tuple[int, Any] | None:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(HOLD_S)
            connection.connect(self._name)
            _require_own_account(connection)
            content = {"run": self._run, "token": self._token, "report": report}
            connection.sendall(json.dumps(content).encode() + b"\n")
            with connection.makefile("rb") as lines:
                if not _taken(lines):
                    return None
                connection.settimeout(WAIT_S)
                if not (line := lines.readline(1 << 16)):
                    return None
        answer = json.loads(line)
        return int(answer["status"]), answer["orders"]

    def _begin_to_carry(self) -> None:
        server = socket.socket(socket.AF_UNIX)
        try:
            server.bind(self._name)
            server.listen(MOST)
        except OSError:
            server.close()  # another was faster: next time
            return
        self._carries, self._server = True, server
        threading.Thread(target=self._receive, args=(server,), name="neighbours", daemon=True).start()

    def _receive(self, server: socket.socket) -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            try:
                self._came.put(_read_guest(connection))
            except (OSError, ValueError, KeyError, TypeError) as error:
                log.info("the report of another run is not carried: %s", error)
                connection.close()


def settle(guests: Sequence[Guest], status: int, answer: Any) -> None:
    """Hand on what the portal answered to the report that carried them."""
    others = answer.get("others") if status == 200 and isinstance(answer, dict) else None
    if isinstance(others, list) and len(others) == len(guests):
        for guest, said in zip(guests, others, strict=True):
            guest.answer(said["status"], said["orders"])
        return
    for guest in guests:
        if status == 0:
            guest.answer(0, None)  # they need not ask the same portal at once
        else:
            guest.leave()  # what was wrong was the carrier's


def _read_guest(connection: socket.socket) -> Guest:
    connection.settimeout(HANDSHAKE_S)
    _require_own_account(connection)
    with connection.makefile("rb") as lines:
        content = json.loads(lines.readline(MOST_BYTES))
    if not isinstance(content["report"], dict):
        raise TypeError("no report")
    return Guest(connection, str(content["run"]), str(content["token"]), content["report"])


def _taken(lines: IO[bytes]) -> bool:
    try:
        return bool(lines.readline(1 << 10))
    except TimeoutError:
        return False


def _require_own_account(connection: socket.socket) -> None:
    said = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, _ = _CREDENTIALS.unpack(said)
    if uid != os.getuid():
        raise PermissionError(f"the other end is of account {uid}")
