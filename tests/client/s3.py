"""A store that speaks S3, as a process of its own on loopback, with a door in front that can be slow or shut.

moto is a tool of the tests alone; without it and s3fs these tests are skipped with a line.
"""

from __future__ import annotations

import contextlib
import json
import select
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from evenkeel.runner.workers import free_port

KEY, SECRET = "the-access-key", "the-secret-access-key"


class Door:
    """Passes bytes on to the store: all of them, `bytes_per_s` of them, or none."""

    def __init__(self, behind: int) -> None:
        self._behind, self.port = behind, free_port()
        self.shut, self.bytes_per_s, self.carried = False, 0, 0
        self.answers_bytes_per_s = 0  # of each connection
        self._listener = socket.create_server(("127.0.0.1", self.port), backlog=64)
        self._open: list[socket.socket] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """What is under way breaks off."""
        while self._open:
            with contextlib.suppress(OSError):
                self._open.pop().shutdown(socket.SHUT_RDWR)

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.shut:
                client.close()
                continue
            threading.Thread(target=self._pass, args=(client,), daemon=True).start()

    def _pass(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client, socket.create_connection(("127.0.0.1", self._behind)) as store:
            self._open += [client, store]
            while True:
                ready, _, _ = select.select([client, store], [], [])
                for one in ready:
                    data = one.recv(1 << 14)
                    if not data:
                        return
                    if one is client:
                        self.carried += len(data)
                        if self.bytes_per_s:
                            time.sleep(len(data) / self.bytes_per_s)
                    elif self.answers_bytes_per_s:
                        time.sleep(len(data) / self.answers_bytes_per_s)
                    (store if one is client else client).sendall(data)


@dataclass
class S3:
    port: int
    door: Door
    bucket: str = "checkpoints"
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"s3://{self.bucket}/evenkeel"

    @property
    def direct(self) -> dict[str, Any]:
        """Options that lead past the door."""
        return self.options | {"endpoint_url": f"http://127.0.0.1:{self.port}"}

    def files(self) -> Any:
        """fsspec's view of the store, for tests to look and to break things."""
        import fsspec

        return fsspec.filesystem("s3", skip_instance_cache=True, use_listings_cache=False, **self.direct)

    def names(self) -> list[str]:
        root = f"{self.bucket}/evenkeel/"
        return sorted(path.removeprefix(root) for path in self.files().find(f"{self.bucket}/evenkeel"))

    def complete(self) -> list[int]:
        found = [name.split("/")[-2] for name in self.names() if name.endswith("/complete.json")]
        return sorted(int(name.split("-")[1]) for name in found)


@contextlib.contextmanager
def s3_server() -> Iterator[S3]:
    for module in ("moto", "s3fs", "flask", "flask_cors"):
        pytest.importorskip(module, reason="pip install -r requirements-s3.lock -r requirements-s3-test.lock")
    from fsspec.asyn import reset_lock

    reset_lock()  # fsspec's thread stays in the network namespace in which it began
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    door = Door(port)
    try:
        _await(port, server)
        made = S3(port, door)
        made.options = {"endpoint_url": f"http://127.0.0.1:{door.port}", "key": KEY, "secret": SECRET}
        made.files().mkdir(made.bucket)
        yield made
    finally:
        reset_lock()
        door.close()
        server.kill()
        server.wait()


def _await(port: int, server: subprocess.Popen[bytes]) -> None:
    give_up_at = time.monotonic() + 60
    while True:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5).close()
            return
        except OSError:
            assert server.poll() is None, "the S3 server ended"
            assert time.monotonic() < give_up_at, "the S3 server does not answer"
            time.sleep(0.1)


def secret_of(s3: S3) -> str:
    """The driver's options as they come to a runner, in `secrets.json`."""
    credentials = {name: s3.options[name] for name in ("key", "secret")}
    options = {"endpoint_url": s3.options["endpoint_url"]}
    value = json.dumps({"options": options, "credentials": credentials})
    return json.dumps([{"name": "evenkeel.checkpoint-store", "env": None, "file": None, "value": value}])
