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


@pytest.mark.skipif(os.geteuid() != 0, reason="ids change as root only")
def test_a_fork_server_of_an_account_is_out_of_its_reach_and_what_it_forks_is_the_accounts() -> None:
    uid, nobody = 2_199_999, 2_199_998
    program = (
        "import os, sys, time; from evenkeel.runner.zygote import act_as, become; act_as(*map(int, sys.argv[1:]));"
        "print(open('/proc/self/status').read().count('Groups:\\t \\n'), *os.getresuid(), *os.getresgid(), flush=True);"
        "sys.stdin.readline(); become(int(sys.argv[1]));"
        "print(*os.getresuid(), os.access('/proc/self/environ', os.R_OK), flush=True); sys.stdin.readline()"
    )
    command = [sys.executable, "-c", program, str(uid), str(nobody)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        assert server.stdout.readline().split()[1:] == [str(n) for n in (nobody, uid, nobody, uid, uid, uid)]
        assert signalled_by(uid, server.pid) == "PermissionError"
        server.stdin.write("\n")
        server.stdin.flush()
        assert server.stdout.readline().split() == [str(uid)] * 3 + ["True"]
        assert signalled_by(uid, server.pid) == "sent"
        server.stdin.write("\n")
        server.stdin.flush()


def signalled_by(uid: int, pid: int) -> str:
    program = (
        "import os, sys\ntry: os.kill(int(sys.argv[1]), 0)\nexcept OSError as e: print(type(e).__name__)\n"
        "else: print('sent')"
    )
    command = [sys.executable, "-c", program, str(pid)]
    done = subprocess.run(command, user=uid, group=uid, extra_groups=[], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.parametrize(
    "request_",
    [b"{", b"[]", b"{}", b'{"epoch_dir": "/x"}', b'{"epoch_dir": 1, "fds": []}', b'{"epoch_dir": "/x", "fds": ["a"]}'],
)
def test_a_request_that_it_does_not_understand_is_left_unanswered(server: Path, request_: bytes) -> None:
    pid, answer = ask(server, request_)
    assert answer == b""
    assert ask(server, b"")[0] == pid, "the same server still answers"
