"""Messages between the runners of one epoch on several nodes: JSON lines over TCP.

Both ends prove that they know the run's token; neither the token nor any other secret is sent.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import logging
import queue
import secrets
import socket
import threading
import time
from typing import Any

log = logging.getLogger(__name__)

HANDSHAKE_S = 10.0
SEND_S = 10.0
MAX_LINE = 1 << 20
Message = dict[str, Any]


class Channel:
    """One end. `fileno` becomes readable when something came, or when the other end is gone."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(SEND_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket, self._buffer = connection, b""
        self.pending: list[Message] = []  # came along with what `wait` returned
        self.heard_at = time.monotonic()
        self.open = True

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, message: Message) -> None:
        """To an end that is gone it says nothing."""
        if not self.open:
            return
        try:
            self._socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            self.close()

    def receive(self) -> list[Message]:
        """What has come whole; called when there is something to read. Afterwards `open` is False at the end."""
        try:
            data = self._socket.recv(1 << 16)
        except OSError:
            data = b""
        if not data or len(self._buffer) > MAX_LINE:
            self.close()
            return []
        self.heard_at = time.monotonic()
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        try:
            return [message for message in map(json.loads, lines) if isinstance(message, dict)]
        except ValueError:
            self.close()
            return []

    def wait(self, timeout_s: float) -> Message | None:
        """The next message; None when none came in time, after which the channel is closed."""
        give_up_at = time.monotonic() + timeout_s
        while not self.pending and self.open and (left_s := give_up_at - time.monotonic()) > 0:
            self._socket.settimeout(left_s)
            try:
                self.pending += self.receive()
            finally:
                with contextlib.suppress(OSError):
                    self._socket.settimeout(SEND_S)
        return self.pending.pop(0) if self.pending else None

    def close(self) -> None:
        self.open = False
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def _proof(key: bytes, *words: str) -> str:
    return hmac.digest(key, "\n".join(words).encode(), "sha256").hex()


class Door:
    """Where the other nodes' runners connect. Each is greeted in a separate thread: a silent stranger does not block
    the others."""

    def __init__(self, address: str, key: bytes) -> None:
        self._key = key
        self._socket = socket.create_server((address, 0), family=_family(address), backlog=512)
        self.port = int(self._socket.getsockname()[1])
        self.came: queue.SimpleQueue[tuple[str, Channel]] = queue.SimpleQueue()
        threading.Thread(target=self._greet_all, name="door", daemon=True).start()

    def _greet_all(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return  # closed
            threading.Thread(target=self._greet, args=(Channel(connection),), daemon=True).start()

    def _greet(self, channel: Channel) -> None:
        nonce = secrets.token_hex(32)
        channel.send({"nonce": nonce})
        answer = channel.wait(HANDSHAKE_S) or {}
        node, theirs = str(answer.get("node")), str(answer.get("nonce"))
        if not hmac.compare_digest(str(answer.get("proof")), _proof(self._key, "joins", nonce, node)):
            log.warning("a process without the run's token tried to join")
            channel.close()
            return
        channel.send({"proof": _proof(self._key, "leads", theirs, node)})
        self.came.put((node, channel))

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def join(address: str, port: int, key: bytes, node: str) -> Channel:
    """A channel to the door; OSError if nothing, or a stranger, listens there."""
    connection = socket.create_connection((address, port), timeout=HANDSHAKE_S)
    channel, nonce = Channel(connection), secrets.token_hex(32)
    greeting = channel.wait(HANDSHAKE_S) or {}
    proof = _proof(key, "joins", str(greeting.get("nonce")), node)
    channel.send({"node": node, "nonce": nonce, "proof": proof})
    answer = channel.wait(HANDSHAKE_S) or {}
    if not hmac.compare_digest(str(answer.get("proof")), _proof(key, "leads", nonce, node)):
        channel.close()
        raise ConnectionError("the first node's runner does not know the run's token")
    return channel


def _family(address: str) -> socket.AddressFamily:
    return socket.getaddrinfo(address, 0, type=socket.SOCK_STREAM)[0][0]
