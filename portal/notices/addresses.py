"""Which addresses webhooks may reach: public ones, and those of networks that an administrator lists.

A name is looked up once, every address that it has is checked, and the connection goes to one that was checked: a name
that means something else a moment later leads nowhere else.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import threading

import httpx
from django.conf import settings

MAX_URL = 500
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
#: Behind such IPv6 addresses is an IPv4 address (RFC 6052, RFC 3056): the prefix, and where that address begins.
_EMBEDDED = ((ipaddress.IPv6Network("64:ff9b::/96"), 96), (ipaddress.IPv6Network("2002::/16"), 16))


class NotReachable(Exception):
    """One sentence that says why nothing is sent there."""


def check_url(url: str) -> httpx.URL:
    """The URL if a webhook may have it, as far as that can be seen without looking its name up. Raises ValueError."""
    if len(url) > MAX_URL:
        raise ValueError(f"may have {MAX_URL} characters at most")
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, UnicodeError):
        raise ValueError("must be a URL like https://hooks.example.org/evenkeel") from None
    if parsed.scheme not in ("https", "http") or not parsed.host:
        raise ValueError("must begin with https:// and name a host")
    if parsed.scheme == "http" and not settings.EVENKEEL_WEBHOOK_NETWORKS:
        raise ValueError("must begin with https://")
    if not 0 < (parsed.port or 443) < 65_536:
        raise ValueError("must have a port below 65536")
    if parsed.userinfo or parsed.fragment:
        raise ValueError("must have no user name, no password and no fragment")
    literal = _literal(parsed.host)
    if literal is not None and not _may_be_reached(literal, parsed.scheme):
        raise ValueError(f"leads nowhere: {_why_not(parsed)}")
    return parsed


def _literal(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def shown(url: httpx.URL) -> str:
    """The host alone: paths of webhooks are secrets."""
    return f"{url.scheme}://{url.netloc.decode('ascii')}"


async def address_of(url: httpx.URL) -> str:
    """The address to connect to. Raises NotReachable if any address of the name may not be reached."""
    found = await _look_up(url.host, url.port or (443 if url.scheme == "https" else 80))
    if not all(_may_be_reached(ipaddress.ip_address(one), url.scheme) for one in found):
        raise NotReachable(_why_not(url))
    return found[0]


def _may_be_reached(address: Address, scheme: str) -> bool:
    address = _meant(address)
    if any(address in network for network in settings.EVENKEEL_WEBHOOK_NETWORKS):
        return True
    return scheme == "https" and address.is_global and not address.is_multicast


def _meant(address: Address) -> Address:
    """The IPv4 address inside of an IPv6 one, where there is one."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address.ipv4_mapped:
        return address.ipv4_mapped
    for prefix, bits in _EMBEDDED:
        if address in prefix:
            return ipaddress.IPv4Address(int(address) >> (96 - bits) & 0xFFFFFFFF)
    return address


def _why_not(url: httpx.URL) -> str:
    if url.scheme == "http":
        return f"{url.host} may be reached by https:// only, unless an administrator lists its network."
    return f"{url.host} is not a public address. An administrator can list its network (EVENKEEL_WEBHOOK_NETWORKS)."


async def _look_up(host: str, port: int) -> list[str]:
    """In a thread that nobody waits for: the system's resolver knows no time-out."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[list[str]] = loop.create_future()

    def settle(found: list[str]) -> None:
        if not answer.done():
            answer.set_result(found)

    def look() -> None:
        found: list[str] = []
        with contextlib.suppress(OSError, UnicodeError):
            found = [str(entry[4][0]) for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
        with contextlib.suppress(RuntimeError):  # nobody waits any more
            loop.call_soon_threadsafe(settle, found)

    threading.Thread(target=look, daemon=True).start()
    found = await answer
    if not found:
        raise NotReachable(f"The name {host} cannot be found.")
    return found
