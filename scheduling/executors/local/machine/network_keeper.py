"""Keeps the network of one account: `python -I -S network_keeper.py TERMS`, a separate program, started as root.

Three processes under an account that no job has, in a process namespace whose first process this is, so that the kernel
ends all with it: the keeper, a holder inside the network, and pasta, which forwards the holder's packets. The network
belongs to a user namespace of that account: neither jobs nor pasta have rights in the machine's.

The keeper ends when no process holds the lock of `users` any more: fork servers and runners inherit it.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import selectors
import signal
import socket
import stat
import struct
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from pathlib import Path
from typing import Any

CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x20000, 0x4000, 0x40000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
PR_SET_DUMPABLE, PR_SET_KEEPCAPS, PR_SET_NO_NEW_PRIVS = 4, 8, 38
CAPABILITY_VERSION_3 = 0x20080522
SIOCGIFADDR, SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8915, 0x8913, 0x8914, 1
#: Addresses of the network's own side; the machine keeps its addresses, reachable through pasta.
ADDRESS, GATEWAY, NETMASK = "169.254.2.2", "169.254.2.1", "30"
ADDRESS_6, GATEWAY_6 = "fd2e:6b1c:9f04::2", "fe80::1"
READY_S = 10.0
#: Pause between two starts of a pasta that does not live for a minute.
RESTART_S, MAX_RESTART_S, LIVED_S = 1.0, 30.0, 60.0
UP = b"up"
MAX_QUERIES, QUERY_BYTES, CONNECTION_S = 256, 65_535, 10.0
_libc = ctypes.CDLL(None, use_errno=True)


def must(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def become(uid: int, *, with_rights: bool) -> None:
    """`with_rights`: the holder creates its namespaces where the kernel allows that to root only."""
    os.setgroups([])
    must(_libc.prctl(PR_SET_KEEPCAPS, int(with_rights), 0, 0, 0), "prctl")
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    if with_rights:
        every = (1 << 32) - 1
        header, data = struct.pack("Ii", CAPABILITY_VERSION_3, 0), bytearray(24)
        must(_libc.capget(header, (ctypes.c_char * 24).from_buffer(data)), "capget")
        low, high = struct.unpack("I" * 6, data)[1::3]
        must(_libc.capset(header, struct.pack("I" * 6, low, low, 0, high & every, high & every, 0)), "capset")
    must(_libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl")


class Holder:
    """The process inside the network, so that the network has a name below /proc."""

    def __init__(self, terms: dict[str, Any]) -> None:
        self._terms = terms
        self._ours, theirs = socket.socketpair()
        self.pid = os.fork()  # in our own process namespace
        if self.pid == 0:
            self._ours.close()
            with contextlib.suppress(BaseException):
                self._live(theirs)
            os._exit(1)
        theirs.close()
        text, fds, _, _ = socket.recv_fds(self._ours, 4096, 2)
        said = json.loads(text or b'{"problem": "the holder of the network ended"}')
        if "problem" in said:
            raise OSError(said["problem"])
        self.proc = Path("/proc") / str(said["pid"])
        self.inode = int(said["inode"])
        self.listening = [socket.socket(fileno=fd) for fd in fds]

    def is_up(self) -> bool:
        """Whether pasta has set it up within its time."""
        return self._ours.recv(len(UP)) == UP

    def give_up(self) -> None:
        """Release the processes that wait for it."""
        with contextlib.suppress(OSError):
            self._ours.shutdown(socket.SHUT_RDWR)

    def _live(self, ours: socket.socket) -> None:
        try:
            self._enter()
            set_up("lo")
            sockets = listen_at(self._terms["resolver"]) if self._terms["resolver"] else []
        except OSError as error:
            ours.sendall(json.dumps({"problem": str(error)}).encode())
            return
        pid, inode = int(os.readlink("/proc/self")), Path("/proc/self/ns/net").stat().st_ino  # noqa: PTH115
        said = json.dumps({"pid": pid, "inode": inode}).encode()
        socket.send_fds(ours, [said], [one.fileno() for one in sockets])
        for one in sockets:
            one.close()
        if wait_for_way_out():
            ours.sendall(UP)
            while True:
                signal.pause()

    def _enter(self) -> None:
        uid, namespaces = self._terms["uid"], self._terms["namespaces"]
        become(uid, with_rights=True)
        if namespaces:  # of a network whose keeper was killed
            must(_libc.setns(namespaces[0], CLONE_NEWUSER), "setns")
            must(_libc.setns(namespaces[1], CLONE_NEWNET), "setns")
        else:
            must(_libc.unshare(CLONE_NEWUSER | CLONE_NEWNET), "unshare")
            must(_libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0), "prctl")  # otherwise its files below /proc belong to root
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
            Path("/proc/self/gid_map").write_text(f"0 {uid} 1")
        must(_libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0), "prctl")


def set_up(name: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        request = struct.pack("16sH22x", name.encode(), 0)
        (flags,) = struct.unpack("16xH22x", fcntl.ioctl(probe, SIOCGIFFLAGS, request))
        fcntl.ioctl(probe, SIOCSIFFLAGS, struct.pack("16sH22x", name.encode(), flags | IFF_UP))


def wait_for_way_out() -> bool:
    give_up_at = time.monotonic() + READY_S
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        while time.monotonic() < give_up_at:
            with contextlib.suppress(OSError):
                probe.connect(("198.51.100.1", 9))  # sends nothing; refused without a route
                return True
            time.sleep(0.002)
    return False


# A resolver on the machine's loopback device (systemd-resolved's is 127.0.0.53) is answered at the same address


def listen_at(address: str) -> list[socket.socket]:
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.bind((address, 53))
    return [datagrams, socket.create_server((address, 53))]


class Relay(threading.Thread):
    def __init__(self, resolver: str, listening: list[socket.socket]) -> None:
        super().__init__(daemon=True)
        self._resolver, (self._datagrams, self._server) = (resolver, 53), listening
        self._asked: OrderedDict[socket.socket, Any] = OrderedDict()  # our question -> its sender
        self._selector = selectors.DefaultSelector()

    def run(self) -> None:
        self._selector.register(self._datagrams, selectors.EVENT_READ)
        self._selector.register(self._server, selectors.EVENT_READ)
        while True:
            for key, _ in self._selector.select():
                with contextlib.suppress(OSError):
                    self._pass_on(key.fileobj)

    def _pass_on(self, one: Any) -> None:
        if one is self._datagrams:
            question, client = one.recvfrom(QUERY_BYTES)
            while len(self._asked) >= MAX_QUERIES:
                self._forget(next(iter(self._asked)))
            upstream = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self._asked[upstream] = client
            self._selector.register(upstream, selectors.EVENT_READ)
            upstream.connect(self._resolver)
            upstream.send(question)
        elif one is self._server:
            connection, _ = one.accept()
            if threading.active_count() < MAX_QUERIES:
                threading.Thread(target=self._converse, args=(connection,), daemon=True).start()
            else:
                connection.close()
        elif one in self._asked:
            client = self._asked[one]
            try:
                self._datagrams.sendto(one.recv(QUERY_BYTES), client)
            finally:
                self._forget(one)

    def _forget(self, upstream: socket.socket) -> None:
        del self._asked[upstream]
        self._selector.unregister(upstream)
        upstream.close()

    def _converse(self, connection: socket.socket) -> None:
        """One question larger than a datagram, and its answer, each preceded by its length."""
        with contextlib.suppress(OSError), connection:
            connection.settimeout(CONNECTION_S)
            with socket.create_connection(self._resolver, CONNECTION_S) as upstream:
                upstream.sendall(_message(connection))
                connection.sendall(_message(upstream))


def _message(connection: socket.socket) -> bytes:
    with connection.makefile("rb") as file:
        length = file.read(2)
        return length + file.read(int.from_bytes(length, "big"))


# Pasta


def lend_device() -> None:
    """Pasta opens it under its own account. If that is not allowed (udev usually allows it), it gets an accessible
    copy."""
    path = Path("/dev/net/tun")
    if path.exists() and path.stat().st_mode & 0o006 == 0o006:
        return
    must(_libc.unshare(CLONE_NEWNS), "unshare")
    must(_libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None), "mount")
    must(_libc.mount(b"tmpfs", bytes(path.parent), b"tmpfs", 0, b"mode=0755"), f"mount {path.parent}")
    os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(10, 200))
    path.chmod(0o666)


def command(terms: dict[str, Any], holder: Holder) -> list[str]:
    """No incoming connections. Of the machine's loopback device only these ports can be reached, with the same
    numbers."""
    ports = ",".join(map(str, terms["ports"])) or "none"
    return [
        terms["pasta"], "--foreground", "--quiet", "--config-net", "--no-map-gw",
        "--userns", str(holder.proc / "ns" / "user"), "--netns", str(holder.proc / "ns" / "net"),
        "--interface", terms["interface"], "--address", ADDRESS, "--netmask", NETMASK, "--gateway", GATEWAY,
        *(["--address", ADDRESS_6, "--gateway", GATEWAY_6] if terms["ipv6"] else ["--ipv4-only"]),
        "--no-dhcp", "--no-dhcpv6", "--no-ra", "--ns-ifname", "outside",
        "--tcp-ports", "none", "--udp-ports", "none", "--udp-ns", "none", "--tcp-ns", ports,
    ]  # fmt: skip


def start(terms: dict[str, Any], holder: Holder) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command(terms, holder), stdin=subprocess.DEVNULL, env={}, cwd="/")


def keep(terms: dict[str, Any], tell: Any) -> None:
    lend_device()
    holder = Holder(terms)
    become(terms["uid"], with_rights=False)
    process, started_at, pause_s = start(terms, holder), time.monotonic(), RESTART_S
    threading.Thread(target=_watch, args=(process.pid, holder), daemon=True).start()
    if not holder.is_up():
        raise OSError("pasta did not set it up")
    if holder.listening:
        Relay(terms["resolver"], holder.listening).start()
    tell({"pid": int(os.readlink("/proc/self")), "holder": int(holder.proc.name), "inode": holder.inode})  # noqa: PTH115
    threading.Thread(target=_end_with_users, args=(terms["users"],), daemon=True).start()
    while True:
        pid, status = os.wait()
        if pid == holder.pid:
            return
        if pid == process.pid:
            pause_s = RESTART_S if time.monotonic() > started_at + LIVED_S else min(2 * pause_s, MAX_RESTART_S)
            print(f"pasta ended with {status}; it is started again", file=sys.stderr, flush=True)  # noqa: T201
            time.sleep(pause_s)
            process, started_at = start(terms, holder), time.monotonic()


def _watch(pid: int, holder: Holder) -> None:
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    holder.give_up()


def _end_with_users(lock: int) -> None:
    fcntl.flock(lock, fcntl.LOCK_EX)
    os._exit(0)


def main() -> None:
    terms = json.loads(sys.argv[1])
    must(_libc.unshare(CLONE_NEWPID), "unshare")
    if os.fork():
        os._exit(0)
    with open(terms["said"], "w") as said:  # noqa: PTH123

        def tell(content: dict[str, Any]) -> None:
            said.write(json.dumps(content))
            said.close()

        try:
            keep(terms, tell)
        except OSError as error:
            if not said.closed:
                tell({"problem": str(error)})
    os._exit(1)


if __name__ == "__main__":
    main()
