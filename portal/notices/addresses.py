"""Which addresses webhooks may use: public ones, and those of networks that an administrator lists.

A name is resolved once, all its addresses are checked, and the connection uses a checked one: a later change of the
name has no effect.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import threading

import httpx
from django.conf import settings
from evenkeel.web_address import Address, meant, numeric_host, read_url

MAX_URL = 500


class NotReachable(Exception):
    """One sentence that says why nothing is sent there."""


def check_url(url: str) -> httpx.URL:
    """Returns the URL if a webhook may use it, as far as that can be decided without DNS. Raises ValueError."""
    parts = read_url(url, most=MAX_URL)
    if parts.scheme == "http" and not settings.EVENKEEL_WEBHOOK_NETWORKS:
        raise ValueError("must begin with https://")
    if "#" in url:
        raise ValueError("must have no fragment")
    try:
        parsed = httpx.URL(url)
        host = parsed.host  # decoding fails for a host such as xn--a
    except (httpx.InvalidURL, UnicodeError):
        raise ValueError("must be a URL like https://hooks.example.org/evenkeel") from None
    if numeric_host(host) and _literal(host) is None:
        raise ValueError("must name a host, or write its address as 192.0.2.1 or [2001:db8::1]")
    literal = _literal(host)
    if literal is not None and not _may_be_reached(literal, parsed.scheme):
        raise ValueError(f"leads nowhere: {_why_not(parsed)}")
    return parsed


def _literal(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def shown(url: httpx.URL) -> str:
    """Only the host: paths of webhooks are secret."""
    return f"{url.scheme}://{url.netloc.decode('ascii')}"


async def address_of(url: httpx.URL) -> str:
    """The address to connect to. Raises NotReachable if any address of the name is forbidden."""
    found = await _look_up(url.host)
    if not all(_may_be_reached(ipaddress.ip_address(one), url.scheme) for one in found):
        raise NotReachable(_why_not(url))
    return found[0]


def _may_be_reached(address: Address, scheme: str) -> bool:
    address = meant(address)
    if any(address in network for network in settings.EVENKEEL_WEBHOOK_NETWORKS):
        return True
    return scheme == "https" and address.is_global and not address.is_multicast


def _why_not(url: httpx.URL) -> str:
    if url.scheme == "http":
        return f"{url.host} may be reached by https:// only, unless an administrator lists its network."
    return f"{url.host} is not a public address. An administrator can list its network (EVENKEEL_WEBHOOK_NETWORKS)."


async def _look_up(host: str) -> list[str]:
    """In a thread that is not joined: the system's resolver has no time-out."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[list[str]] = loop.create_future()

    def settle(found: list[str]) -> None:
        if not answer.done():
            answer.set_result(found)

    def look() -> None:
        found: list[str] = []
        with contextlib.suppress(OSError, UnicodeError):
            found = [str(entry[4][0]) for entry in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]
        with contextlib.suppress(RuntimeError):  # the caller no longer waits
            loop.call_soon_threadsafe(settle, found)

    threading.Thread(target=look, daemon=True).start()
    found = await answer
    if not found:
        raise NotReachable(f"The name {host} cannot be found.")
    return found
