"""Which network interface leads to the other nodes of a gang."""

from __future__ import annotations

import contextlib
import fcntl
import socket
import struct
from collections.abc import Iterable

_SIOCGIFADDR = 0x8915
_NAME_BYTES = 15
_DISCARD_PORT = 9


def interface_towards(addresses: Iterable[str]) -> str | None:
    """Of IPv4 `addresses` or names, the first that is reached otherwise than by loopback says it; None: none is, or
    the interface is not known."""
    for address in addresses:
        own = _own_address_towards(address)
        if own is not None and not own.startswith("127."):
            return _interface_with(own)
    return None


def _own_address_towards(address: str) -> str | None:
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((address, _DISCARD_PORT))  # sends nothing
        return str(probe.getsockname()[0])
    return None


def _interface_with(own: str) -> str | None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # it has no address
                found = fcntl.ioctl(probe, _SIOCGIFADDR, struct.pack("256s", name.encode()[:_NAME_BYTES]))
                if socket.inet_ntoa(found[20:24]) == own:
                    return name
    return None
