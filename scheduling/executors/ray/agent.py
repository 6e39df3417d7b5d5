"""The process that holds the connection to a Ray cluster: `python -m scheduling.executors.ray.agent DIRECTORY`.

It answers at DIRECTORY/agent.sock, with a thread for each request, and ends after ten minutes without one, or when
asked about another cluster than the one that it is connected to. It has no state: killing it loses nothing.
"""

from __future__ import annotations

import concurrent.futures
import json
import logging
import os
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

from evenkeel.runner.entry import detach

from scheduling.errors import ExecutorError
from scheduling.executors.ray.link import SOCKET, Connection, connection_of

log = logging.getLogger(__name__)

IDLE_S = 600.0
LOOK_AROUND_S = 5.0
MAX_REQUEST = 16 << 20
MAX_THREADS = 32
READ_TIMEOUT_S = 5.0
WRONG_CLUSTER = 3  # exit status


class Agent:
    def __init__(self) -> None:
        self._calls: concurrent.futures.Future[Any] | None = None
        self._connection: Connection | None = None
        self._lock = threading.Lock()
        self._room = threading.BoundedSemaphore(MAX_THREADS)
        self.last_used = time.monotonic()

    def serve(self, listener: socket.socket) -> None:
        listener.settimeout(LOOK_AROUND_S)
        while time.monotonic() - self.last_used < IDLE_S:
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                continue
            self.last_used = time.monotonic()
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection, self._room:
            try:
                connection.settimeout(READ_TIMEOUT_S)
                request = json.loads(_read(connection))
                answer = self._carry_out(request)
                connection.sendall(json.dumps(answer).encode() + b"\n")
            except (OSError, ValueError, KeyError, TypeError) as error:
                log.warning("a request was not answered: %s: %s", type(error).__name__, error)
        self.last_used = time.monotonic()

    def _carry_out(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            calls = self._connected(connection_of(request["connection"]), float(request["timeout_s"]))
            return {"result": calls.carry_out(request["call"], request["arguments"], float(request["timeout_s"]))}
        except ExecutorError as error:
            return {"error": str(error), "permanent": error.permanent}
        except Exception as error:
            log.exception("%s", request["call"])
            return {"error": f"Ray: {type(error).__name__}: {' '.join(str(error).split())[:400]}", "permanent": False}

    def _connected(self, wanted: Connection, timeout_s: float) -> Any:
        with self._lock:
            if self._connection not in (None, wanted):
                log.warning("asked about another cluster: ending")
                os._exit(WRONG_CLUSTER)
            self._connection = wanted
            if self._calls is None:
                self._calls = concurrent.futures.Future()
                threading.Thread(target=_connect, args=(self._calls, wanted), daemon=True).start()
        try:
            return self._calls.result(timeout_s)
        except TimeoutError as error:
            raise ExecutorError(
                f"no connection to Ray at {wanted.address} within {timeout_s:g} s", permanent=False
            ) from error
        except Exception as error:
            with self._lock:
                self._calls = None
            text = f"no connection to Ray at {wanted.address}: {' '.join(str(error).split())[:400]}"
            raise ExecutorError(text, permanent=False) from error


def _connect(future: concurrent.futures.Future[Any], connection: Connection) -> None:
    try:
        from scheduling.executors.ray.calls import Calls

        future.set_result(Calls.connect(connection))
    except ModuleNotFoundError as error:
        if error.name and error.name.partition(".")[0] == "ray":
            error = ModuleNotFoundError("Ray is not installed: pip install -r requirements-ray.lock")
        future.set_exception(error)
    except BaseException as error:
        future.set_exception(error)


def _read(connection: socket.socket) -> bytes:
    data = bytearray()
    while not data.endswith(b"\n"):
        part = connection.recv(1 << 16)
        if not part or len(data) > MAX_REQUEST:
            raise ValueError("no whole request")
        data += part
    return bytes(data)


def listen(directory: Path) -> socket.socket:
    """Replaces a previous agent's socket: the starter holds the lock."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    (directory / SOCKET).unlink(missing_ok=True)
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    listener.bind(f"/proc/self/fd/{handle}/{SOCKET}")
    os.close(handle)
    listener.listen(128)
    return listener


def main() -> None:
    detach()  # before it listens: a process that wants to end us asks the kernel for the listener
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    Agent().serve(listen(Path(sys.argv[1])))
    os._exit(0)  # threads that wait for Ray must not delay the exit


if __name__ == "__main__":
    main()
