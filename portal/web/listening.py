"""The web process's sockets: its address, and others that browsers treat as the same host.

A name such as `localhost` has an IPv4 and an IPv6 address, and browsers try both. A job that listens on the other one
would receive the sessions of the portal's users.
"""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Iterator

_SAME_PLACE = {"127.0.0.1": "::1", "::1": "127.0.0.1", "0.0.0.0": "::", "::": "0.0.0.0"}  # noqa: S104  # nosec B104
_NO_SUCH_FAMILY = {errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL}
_BACKLOG = 2_048

Address = tuple[socket.AddressFamily, str]


class CannotListen(Exception):
    """The address is in use, or does not exist."""

    def __init__(self, address: str, port: int, error: OSError) -> None:
        self.address, self.in_use = address, error.errno == errno.EADDRINUSE
        reason = "is in use" if self.in_use else f"cannot be used ({error.strerror or error})"
        super().__init__(f"Port {port} on {address} {reason}; free it or set EVENKEEL_PORT to another.")


def listen(host: str, port: int) -> list[socket.socket]:
    """Listening sockets, one for each address. Raises CannotListen, with nothing left open."""
    with contextlib.ExitStack() as opened:
        sockets = [opened.enter_context(one) for one in _open(host, port)]
        opened.pop_all()
        return sockets


def _open(host: str, port: int) -> Iterator[socket.socket]:
    for number, (family, address) in enumerate(_addresses(host, port)):
        try:
            yield _listen(family, address, port)
        except OSError as error:
            if number and error.errno in _NO_SUCH_FAMILY:  # this machine has no IPv6, or no IPv4
                continue
            raise CannotListen(address, port, error) from error


def _addresses(host: str, port: int) -> list[Address]:
    """The host's addresses, and the counterpart in the other family."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise CannotListen(host, port, error) from error
    named = [(family, str(place[0])) for family, _, _, _, place in found]
    others = [(_family(other), other) for _, address in named if (other := _SAME_PLACE.get(address))]
    return list(dict.fromkeys([*named, *others]))


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def _listen(family: socket.AddressFamily, address: str, port: int) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind((address, port))
        made.listen(_BACKLOG)
    except OSError:
        made.close()
        raise
    return made
