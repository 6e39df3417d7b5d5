"""What a cluster engine's own process on a node does for a run: it starts the runner as its child, says how that is,
and ends it for certain. Plain Python: the engine (Ray) makes an actor of `Host`, and tasks of the functions.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import platform
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import evenkeel
from evenkeel.runner.files import create_private, open_plain
from evenkeel.runner.looking import TIMEOUT_S, of_node
from evenkeel.runner.processes import (
    Process,
    all_processes,
    die_with_parent,
    read_process,
    real_uid,
    signal_quietly,
)
from evenkeel.runner.reaching import reached
from evenkeel.runner.reports import write_atomically
from evenkeel.runner.spec import ENDED_FILE
from evenkeel.store import DRIVERS
from evenkeel.store.offers import offers

PLAN = "plan.json"
KILL_GRACE_S = 3.0  # for the runner to end its workers and leave its record itself
DEATH_TIMEOUT_S = 10.0
LAUNCH_WAIT_S = 30.0
PORTAL_TIMEOUT_S = 5.0
#: Of the node's own environment only these reach the runner and the program.
NODE_VARIABLES = frozenset(
    {
        "LANG",
        "LANGUAGE",
        "TZ",
        "LD_LIBRARY_PATH",
        "CUDA_HOME",
        "CUDA_PATH",
        "NVIDIA_VISIBLE_DEVICES",
        "NVIDIA_DRIVER_CAPABILITIES",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
    }
)
_MAX_PLAN = 4 << 20


class Host:
    """Made on each node that the run was planned on; `node` is its name, None on the first one. Its process's end is
    the runner's: the kernel sees to that, so who knows that the host is gone knows that of what it started."""

    def __init__(self, epoch_dir: str, node: str | None = None) -> None:
        self._dir, self._node = Path(epoch_dir), node
        environment = node_environment()
        if node is None:
            write_launch(self._dir, environment)
        else:
            await_launch(self._dir, node)
        parent = os.getpid()
        self._runner = subprocess.Popen(
            [sys.executable, "-m", "evenkeel.runner", str(self._dir), *(["--follow", node] if node else [])],
            env=environment | {"CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", "")},
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            umask=0o077,
            preexec_fn=lambda: die_with_parent(parent),
        )
        started = read_process(self._runner.pid)
        self._start_ticks = started.start_ticks if started else 0
        self._witness, self._kept = self._call_witness(environment)

    def _call_witness(self, environment: dict[str, str]) -> tuple[subprocess.Popen[bytes] | None, int]:
        """It reports once the descriptor is closed, as by the end of our process. Without the report the outcome of the
        run here would be unknown, and its lease would decide."""
        reading, writing = os.pipe()
        word = self._dir / (f"node-{self._node}" if self._node else ".") / ENDED_FILE
        terms = [str(self._dir), str(word), str(self._runner.pid), str(self._start_ticks)]
        process = None
        with contextlib.suppress(OSError):
            process = subprocess.Popen(
                [sys.executable, "-m", "evenkeel.runner.witness", *terms],
                env=environment, cwd="/", stdin=reading, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                umask=0o077,
            )  # fmt: skip
        os.close(reading)
        return process, writing

    def look(self) -> dict[str, Any]:
        """Whether the runner runs, whether it has begun, and what the processes use."""
        code = self._runner.poll()
        if self._witness is not None:
            self._witness.poll()  # it goes on without a parent
        mine = [] if code is not None else _of_session(self._runner.pid)
        return {
            "running": code is None,
            "begun": self._begun(),
            "code": code,
            "pid": self._runner.pid,
            "usage": {
                "cpu_s": round(sum(process.cpu_s for process in mine), 2),
                "rss_mib": round(sum(process.rss_mib for process in mine), 1),
                "processes": float(len(mine)),
            },
        }

    def _begun(self) -> bool:
        """It knows all that it needs to know of the files."""
        mark = f"node-{self._node}/sdk/control" if self._node else "runner.json"
        return (self._dir / mark).exists()

    def ask_to_end(self) -> None:
        """The runner ends the program, which has its grace."""
        if self._runner.poll() is None:
            signal_quietly(self._runner.pid, signal.SIGUSR1)

    def end(self) -> bool:
        """Ends everything; True once nothing is left, after at most 13 s."""
        if self._runner.poll() is None:
            signal_quietly(self._runner.pid, signal.SIGUSR1)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._runner.wait(KILL_GRACE_S)
        signal_quietly(self._runner.pid, signal.SIGKILL)
        ended = sweep(str(self._dir), self._runner.pid, self._start_ticks)
        self._runner.poll()
        return ended


def node_environment() -> dict[str, str]:
    """What the runner gets of this node's environment, with this interpreter first in the path."""
    kept = {name: value for name, value in os.environ.items() if name in NODE_VARIABLES or name.startswith("LC_")}
    here = str(Path(sys.executable).parent)
    return kept | {"PATH": f"{here}:{os.environ.get('PATH') or os.defpath}", "PYTHONUNBUFFERED": "1"}


def write_launch(epoch_dir: Path, here: dict[str, str]) -> None:
    """`launch.json`: the executor's plan with the environment of the first node (`here`) in place of the portal's."""
    with open_plain(epoch_dir / PLAN) as file:
        plan: dict[str, Any] = json.loads(file.read(_MAX_PLAN))
    asked = plan["env"]
    elsewhere = {name for name in plan["environment"] if name in here or name in NODE_VARIABLES} - set(asked)
    environment = here | {name: value for name, value in plan["environment"].items() if name not in elsewhere}
    if "VIRTUAL_ENV" in environment and "PATH" not in asked:
        environment["PATH"] = f"{environment['VIRTUAL_ENV']}/bin:{environment['PATH']}"
    plan["environment"] = environment
    write_atomically(epoch_dir / "launch.json", plan)


def await_launch(epoch_dir: Path, node: str) -> None:
    """A shared file system may remember for a while that a file is not there, unless we change its directory."""
    give_up_at = time.monotonic() + LAUNCH_WAIT_S
    while not (epoch_dir / "launch.json").exists():
        if time.monotonic() > give_up_at:
            raise TimeoutError(f"no launch.json in {epoch_dir} on {node}: is it shared with the first node?")
        draft = epoch_dir / f".waiting-{node}"
        draft.touch(mode=0o600)
        draft.unlink(missing_ok=True)
        time.sleep(0.05)


def _of_session(leader: int) -> list[Process]:
    return [process for process in all_processes() if process.session == leader and process.pid != leader]


def sweep(epoch_dir: str, session: int = 0, start_ticks: int = 0) -> bool:
    """Ends every process that was started for the epoch on this node, in the session of its runner or with its mark;
    True once there is none. `start_ticks` says which process led that session."""
    give_up_at = time.monotonic() + DEATH_TIMEOUT_S
    while left := _marked(epoch_dir, session, start_ticks):
        if time.monotonic() > give_up_at:
            return False
        for process in left:
            signal_quietly(process.pid, signal.SIGKILL)
        time.sleep(0.02)
    return True


def _marked(epoch_dir: str, session: int, start_ticks: int) -> list[Process]:
    leader = read_process(session) if session else None
    if leader is not None and leader.start_ticks != start_ticks:
        session = 0  # the number was given to another since, so none of ours was left in it
    return [
        process
        for process in all_processes()
        if process.alive
        and process.pid != os.getpid()
        and real_uid(process.pid) == os.geteuid()
        and ((session and process.session == session) or _has_mark(process.pid, epoch_dir))
    ]


def _has_mark(pid: int, epoch_dir: str) -> bool:
    mark = f"EVENKEEL_SDK_DIR={epoch_dir}/".encode()
    with contextlib.suppress(OSError):
        return any(variable.startswith(mark) for variable in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
    return False


def probe(
    shared: str,
    nonce: str,
    api_url: str,
    data_cache_dir: str,
    node: str,
    gpus: int = 0,
    gpus_timeout_s: float = TIMEOUT_S,
    kept: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """What an administrator wants to know of a node: versions, clock, account, whether it sees the shared files and
    reaches the portal, which data it can have, how its `gpus` real devices are, what of
    what the portal has `kept` its jobs can reach. Leaves a file `NONCE.HOST.PID` beside
    that named NONCE, for the asking side to see."""
    found: dict[str, Any] = {
        "at": time.time(),
        "host": socket.gethostname(),
        "uid": os.geteuid(),
        "python": platform.python_version(),
        "interpreter": sys.executable,
        "evenkeel": evenkeel.__version__,
        "torch": importlib.util.find_spec("torch") is not None,
        "drivers": [name for name in DRIVERS if importlib.util.find_spec(name) is not None],
        "data": offers(data_cache_dir, node),
        "wrote": f"{nonce}.{socket.gethostname()}.{os.getpid()}",
    }
    try:
        found["shared"] = (Path(shared) / nonce).read_text()[:100]
        os.close(create_private(Path(shared) / found["wrote"]))
    except OSError as error:
        found["shared_error"] = f"{type(error).__name__}: {error.strerror or error}"
    try:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        opener.open(f"{api_url.rstrip('/')}/healthz", timeout=PORTAL_TIMEOUT_S).close()
    except (OSError, ValueError) as error:
        found["portal_error"] = str(error)[:200]
    if kept:
        found["reached"] = reached(kept)
    if gpus:
        found["devices"] = of_node(gpus, timeout_s=gpus_timeout_s)
    return found
