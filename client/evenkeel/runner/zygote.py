"""The fork server: an interpreter with the framework imported, which forks runners on request.

`python -m evenkeel.runner.zygote --listen-fd N`; the executor owns the socket, so only it can connect. One connection
is one launch: we say `ready <pid>`, it sends the epoch directory and descriptors (`Handed`), we fork and answer with
the runner's pid. Until it hears `ready` the executor has asked for nothing, so it may give up waiting and start cold.

With `--account UID NOBODY` and started as root, we act as UID while our real and saved ids are `NOBODY`, which no other
process has: jobs of the account can neither stop nor trace us. The runners that we fork are UID altogether.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

from evenkeel.runner.entry import Handed, detach, run_epoch
from evenkeel.runner.processes import PR_SET_DUMPABLE, forbid_new_privileges, prctl, set_name

LOOK_AROUND_S = 5.0
REQUEST_TIMEOUT_S = 5.0


def preload(modules: list[str]) -> None:
    """Imports what is there. Threads would not survive a fork, so none may be started by it."""
    for name in modules:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    threads = len(list(Path("/proc/self/task").iterdir()))
    if threads > 1:
        sys.exit(f"importing {', '.join(modules)} started {threads - 1} threads: no warm start")
    gc.collect()
    gc.freeze()


def act_as(uid: int, nobody: int) -> None:
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(nobody, uid, nobody)


def become(uid: int) -> None:
    """For good. A process whose ids changed cannot be looked at by its own account until it says so."""
    os.setresuid(uid, uid, uid)
    prctl(PR_SET_DUMPABLE, 1)


def serve(listener: socket.socket, idle_s: float, uid: int | None) -> None:
    """Until no request has come for `idle_s`, or our working directory (the data directory's) is gone."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # runners need no parent
    listener.settimeout(LOOK_AROUND_S)
    last_used = time.monotonic()
    while time.monotonic() - last_used < idle_s and Path().stat().st_nlink > 0:
        try:
            connection, _ = listener.accept()
        except TimeoutError:
            continue
        last_used = time.monotonic()
        with connection, contextlib.suppress(OSError, ValueError, KeyError, TypeError):  # what it cannot make out
            connection.settimeout(REQUEST_TIMEOUT_S)
            _answer(connection, listener, uid)


def _answer(connection: socket.socket, listener: socket.socket, uid: int | None) -> None:
    connection.sendall(f"ready {os.getpid()}\n".encode())
    data, fds, _, _ = socket.recv_fds(connection, 4096, 3)
    if not data:
        return
    try:
        asked = json.loads(data)
        epoch_dir, handed = Path(asked["epoch_dir"]), Handed(**dict(zip(asked["fds"], fds, strict=True)))
        pid = os.fork()
        if pid == 0:
            connection.close()
            listener.close()
            if uid is not None:
                become(uid)
            os.setsid()
            run_epoch(epoch_dir, handed, can_fork=True)
        connection.sendall(f"{pid}\n".encode())
    finally:
        for fd in fds:
            os.close(fd)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m evenkeel.runner.zygote")
    parser.add_argument("--listen-fd", type=int, required=True)
    parser.add_argument("--pid-fd", type=int, required=True, help="where to write who we are")
    parser.add_argument("--starting-fd", type=int, required=True, help="a lock, held until requests are answered")
    parser.add_argument("--account", type=int, nargs=2, metavar=("UID", "NOBODY"))
    parser.add_argument("--idle-s", type=float, default=1800.0)
    parser.add_argument("--preload", default="torch")
    options = parser.parse_args()
    if options.account:
        act_as(*options.account)
    detach()
    os.write(options.pid_fd, f"{os.getpid()}\n".encode())
    os.close(options.pid_fd)
    set_name("ek-zygote")
    forbid_new_privileges()
    listener = socket.socket(fileno=options.listen_fd)
    preload([name for name in options.preload.split(",") if name])
    os.close(options.starting_fd)
    serve(listener, options.idle_s, options.account[0] if options.account else None)


if __name__ == "__main__":
    main()
