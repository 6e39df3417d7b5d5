"""Network namespaces for clusters on this machine: one that has nothing but a loopback device, or one for each node.

They have no names: with the last process in one and the last descriptor of it the kernel removes it, its devices too.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

CLONE_NEWNET = 0x40000000
COMMAND_TIMEOUT_S = 20
BRIDGE = "nodes"
DEVICE = "eth0"  # of a node
PREFIX_LENGTH = 16
_OWN = "/proc/thread-self/ns/net"
_libc = ctypes.CDLL(None, use_errno=True)


class NoNetworks(Exception):
    """This machine lets us make no namespaces, or no devices for them."""


class Network:
    """`inside` runs what follows in the namespace: this thread, and what it starts."""

    def __init__(self) -> None:
        self._own = os.open(_OWN, os.O_RDONLY | os.O_CLOEXEC)
        self._made: int | None = None
        if os.geteuid() == 0 and _libc.unshare(CLONE_NEWNET) == 0:
            try:
                self._made = os.open(_OWN, os.O_RDONLY | os.O_CLOEXEC)
                run("ip", "link", "set", "lo", "up")
            finally:
                self._enter(self._own)

    @property
    def is_own(self) -> bool:
        return self._made is not None

    @property
    def path(self) -> str:
        """By which other processes find it, as long as we live."""
        return f"/proc/{os.getpid()}/fd/{self._made}"

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        if self._made is None:
            yield
            return
        before = os.open(_OWN, os.O_RDONLY | os.O_CLOEXEC)
        self._enter(self._made)
        try:
            yield
        finally:
            self._enter(before)
            os.close(before)

    @staticmethod
    def _enter(descriptor: int) -> None:
        if _libc.setns(descriptor, CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")

    def close(self) -> None:
        for descriptor in (self._own, self._made):
            if descriptor is not None:
                os.close(descriptor)


class Loss(Enum):
    """What a node that is cut off loses: what is sent to it, what it sends, or both. Nobody is told of it."""

    TO_NODE = "to the node"
    FROM_NODE = "from the node"
    ALL = "both ways"


@dataclass
class NodeNetworks:
    """A namespace for each of `nodes` (names and addresses), joined by a bridge with `network`, the head's (`head`)."""

    network: Network
    head: str
    nodes: dict[str, str]

    def __post_init__(self) -> None:
        self._of_node: dict[str, Network] = {}

    def up(self) -> None:
        """Raises NoNetworks."""
        if not self.network.is_own:
            raise NoNetworks("only root may make network namespaces")
        try:
            self._join()
        except (OSError, subprocess.CalledProcessError) as error:
            raise NoNetworks(f"network namespaces cannot be joined: {error}") from error

    def _join(self) -> None:
        with self.network.inside():
            run("ip", "link", "add", BRIDGE, "type", "bridge")
            run("ip", "address", "add", f"{self.head}/{PREFIX_LENGTH}", "dev", BRIDGE)
            run("ip", "link", "set", BRIDGE, "up")
            _let_rules_come_first()
        for name, address in self.nodes.items():
            node = self._of_node[name] = Network()
            with self.network.inside():
                peer = ("peer", "name", DEVICE, "netns", node.path)
                run("ip", "link", "add", self._end_of(name), "type", "veth", *peer)
                run("ip", "link", "set", self._end_of(name), "master", BRIDGE, "up")
            with node.inside():
                run("ip", "address", "add", f"{address}/{PREFIX_LENGTH}", "dev", DEVICE)
                run("ip", "link", "set", "dev", DEVICE, "up")
                _let_rules_come_first()

    def of(self, name: str) -> Network:
        return self._of_node.get(name, self.network)

    def cut(self, name: str, loss: Loss) -> None:
        """From now on packets of the node's link are lost, silently; those of open connections, too."""
        if loss in (Loss.TO_NODE, Loss.ALL):
            with self.of(name).inside():
                run("ip", "rule", "add", "pref", "1", "iif", DEVICE, "blackhole")
        if loss in (Loss.FROM_NODE, Loss.ALL):
            with self.network.inside():
                run("ip", "rule", "add", "pref", "1", "from", self.nodes[name], "iif", BRIDGE, "blackhole")

    def slow(self, name: str, kbit_s: int) -> None:
        """What the node sends and is sent waits, for seconds where it is much, and nothing is lost."""
        limits = ("root", "tbf", "rate", f"{kbit_s}kbit", "burst", "1600", "limit", "4mb")
        with self.of(name).inside():
            run("tc", "qdisc", "add", "dev", DEVICE, *limits)
        with self.network.inside():
            run("tc", "qdisc", "add", "dev", self._end_of(name), *limits)

    def _end_of(self, name: str) -> str:
        """The other end of the node's link."""
        return f"node{list(self.nodes).index(name)}"

    def mend(self, name: str) -> None:
        """The link is as it was made."""
        with self.of(name).inside():
            run("ip", "rule", "delete", "pref", "1", "iif", DEVICE, "blackhole", check=False)
            run("tc", "qdisc", "delete", "dev", DEVICE, "root", check=False)
        with self.network.inside():
            run("ip", "rule", "delete", "from", self.nodes[name], "iif", BRIDGE, "blackhole", check=False)
            run("tc", "qdisc", "delete", "dev", self._end_of(name), "root", check=False)

    def down(self) -> None:
        for network in self._of_node.values():
            network.close()


def _let_rules_come_first() -> None:
    """Before a namespace's own addresses are looked up: a rule that loses packets to them must be asked earlier."""
    run("ip", "rule", "add", "pref", "10", "lookup", "local")
    run("ip", "rule", "delete", "pref", "0")


def run(*command: str, check: bool = True) -> None:
    subprocess.run(command, check=check, timeout=COMMAND_TIMEOUT_S, capture_output=not check, stdin=subprocess.DEVNULL)
