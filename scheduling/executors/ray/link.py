"""The connection to the agent, a separate process that holds the connection to Ray (docs/decisions: "A process of its
own for Ray"). It is started on demand, shared by all processes of the portal on this machine, and killed if it does not
answer: the next call starts another.

The socket is in a directory that only we can access. Requests and answers are one line of JSON each.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from evenkeel.program_output import shown_lines

from scheduling.errors import ExecutorError

log = logging.getLogger(__name__)

START_TIMEOUT_S = 15.0  # until it listens; it connects to Ray afterwards
SEND_TIMEOUT_S = 5.0
MAX_ANSWER = 64 << 20
SOCKET, LOCK, LOG = "agent.sock", "agent.lock", "agent.log"
#: Variables of the agent that come from settings, not from the process that starts it.
_OWN_VARIABLES = (
    "RAY_USE_TLS",
    "RAY_TLS_SERVER_CERT",
    "RAY_TLS_SERVER_KEY",
    "RAY_TLS_CA_CERT",
    "RAY_AUTH_MODE",
    "RAY_AUTH_TOKEN",
    "RAY_AUTH_TOKEN_PATH",
    "RAY_ADDRESS",
    "RAY_NAMESPACE",
)


@dataclass(frozen=True, slots=True)
class Connection:
    """Identifies a Ray cluster. Certificates, key and token are files; their contents are sent to Ray only."""

    address: str
    namespace: str
    node_address: str = ""  # this machine's in the cluster; empty: Ray finds it
    tls_cert: str = ""
    tls_key: str = ""
    tls_ca: str = ""
    token_file: str = ""

    def variables(self) -> dict[str, str]:
        found: dict[str, str] = {}
        if self.tls_cert or self.tls_key or self.tls_ca:
            found |= {"RAY_USE_TLS": "1", "RAY_TLS_SERVER_CERT": self.tls_cert}
            found |= {"RAY_TLS_SERVER_KEY": self.tls_key, "RAY_TLS_CA_CERT": self.tls_ca}
        if self.token_file:
            found |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": self.token_file}
        return found


class Link:
    def __init__(self, directory: Path, connection: Connection) -> None:
        self._dir, self.connection = directory, connection

    def ask(self, call: str, timeout_s: float, *, ends_on_timeout: bool = False, **arguments: Any) -> Any:
        """The agent's answer. ExecutorError for errors and timeouts; with `ends_on_timeout` the agent is then killed,
        since such a call takes that long only if the connection hangs."""
        request = {"call": call, "arguments": arguments, "timeout_s": timeout_s, "connection": asdict(self.connection)}
        with self._connected() as connection:
            try:
                connection.settimeout(SEND_TIMEOUT_S)
                connection.sendall(json.dumps(request).encode() + b"\n")
                answer = _read_line(connection, timeout_s + 1.0)
            except TimeoutError as error:
                if ends_on_timeout:
                    _end_peer(connection)
                text = f"Ray at {self.connection.address} does not answer within {timeout_s:g} s"
                raise ExecutorError(text, permanent=False) from error
            except (OSError, ValueError) as error:
                raise ExecutorError(
                    f"the process that speaks to Ray ended: {self._last_words()}", permanent=False
                ) from error
        if "error" in answer:
            raise ExecutorError(str(answer["error"]), permanent=bool(answer.get("permanent")))
        return answer["result"]

    def end(self) -> None:
        """End the agent, if there is one; runs continue."""
        with contextlib.suppress(OSError), self._connect() as connection:
            _end_peer(connection)

    @contextlib.contextmanager
    def _connected(self) -> Iterator[socket.socket]:
        try:
            connection = self._connect()
        except OSError:
            connection = self._start()
        with connection:
            yield connection

    def _connect(self) -> socket.socket:
        """Through the directory's descriptor: paths of sockets are limited to about 100 characters."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        directory = os.open(self._dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            connection.settimeout(SEND_TIMEOUT_S)
            connection.connect(f"/proc/self/fd/{directory}/{SOCKET}")
        except OSError:
            connection.close()
            raise
        finally:
            os.close(directory)
        return connection

    def _start(self) -> socket.socket:
        with (self._dir / LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with contextlib.suppress(OSError):
                return self._connect()  # another process was faster
            self._spawn()
            give_up_at = time.monotonic() + START_TIMEOUT_S
            while time.monotonic() < give_up_at:
                with contextlib.suppress(OSError):
                    return self._connect()
                time.sleep(0.05)
        raise ExecutorError(f"the process that speaks to Ray did not start: {self._last_words()}", permanent=False)

    def _spawn(self) -> None:
        kept = {name: value for name, value in os.environ.items() if name not in _OWN_VARIABLES}
        root = str(Path(__file__).resolve().parents[3])
        environment = kept | self.connection.variables() | {"PYTHONPATH": root, "PYTHONUNBUFFERED": "1"}
        with (self._dir / LOG).open("wb") as output:
            subprocess.run(
                [sys.executable, "-m", "scheduling.executors.ray.agent", str(self._dir)],
                env=environment,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                umask=0o077,
                timeout=START_TIMEOUT_S,
                check=False,
            )

    def _last_words(self) -> str:
        with contextlib.suppress(OSError):
            lines = shown_lines((self._dir / LOG).read_bytes()[-4000:].strip())
            return lines[-1][:500] if lines else "it said nothing"
        return "no log"


def connection_of(fields: Mapping[str, Any]) -> Connection:
    return Connection(**{name: str(value) for name, value in fields.items()})


def _read_line(connection: socket.socket, timeout_s: float) -> dict[str, Any]:
    give_up_at, data = time.monotonic() + timeout_s, bytearray()
    while not data.endswith(b"\n"):
        left_s = give_up_at - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        connection.settimeout(left_s)
        part = connection.recv(1 << 16)
        if not part or len(data) > MAX_ANSWER:
            raise ValueError("no whole answer")
        data += part
    answer = json.loads(data)
    if not isinstance(answer, dict):
        raise ValueError("no answer")
    return answer


def _end_peer(connection: socket.socket) -> None:
    """The process that listens at the other end, from the kernel."""
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid, uid, _ = struct.unpack("3i", data)
    if pid > 1 and uid == os.geteuid() and pid != os.getpid():
        log.warning("ending process %s, which speaks to Ray: it does not answer", pid)
        with contextlib.suppress(OSError):
            ended = os.pidfd_open(pid)
            try:
                signal.pidfd_send_signal(ended, signal.SIGKILL)
                gone = select.poll()
                gone.register(ended, select.POLLIN)
                gone.poll(SEND_TIMEOUT_S * 1_000)  # later callers must not reach it any more
            finally:
                os.close(ended)
