"""The fork server outlives what it cannot make out."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        reading, writing = os.pipe()
        lock = os.open(tmp_path / "lock", os.O_RDONLY | os.O_CREAT)
        fds = {"listen": listener.fileno(), "pid": writing, "starting": lock}
        command = [sys.executable, "-m", "evenkeel.runner.zygote", *(f"--{name}-fd={fd}" for name, fd in fds.items())]
        subprocess.run([*command, "--preload=", "--idle-s=60"], pass_fds=list(fds.values()), check=True)
        os.close(writing)
        os.close(lock)
    pid = int(ask(path, b"")[0])
    assert os.read(reading, 32) == f"{pid}\n".encode()
    os.close(reading)
    yield path
    os.kill(pid, signal.SIGTERM)


def ask(path: Path, request: bytes) -> tuple[str, bytes]:
    """Who answered, and what."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(30)
        connection.connect(str(path))
        word, pid = connection.recv(64).decode().split()
        assert word == "ready"
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        return pid, connection.recv(64)


@pytest.mark.parametrize(
    "request_",
    [b"{", b"[]", b"{}", b'{"epoch_dir": "/x"}', b'{"epoch_dir": 1, "fds": []}', b'{"epoch_dir": "/x", "fds": ["a"]}'],
)
def test_a_request_that_it_does_not_understand_is_left_unanswered(server: Path, request_: bytes) -> None:
    pid, answer = ask(server, request_)
    assert answer == b""
    assert ask(server, b"")[0] == pid, "the same server still answers"
