"""The addresses of this portal, and which addresses lead to its machine.

A browser sends a host's cookies to every port of it, so a program that listens there receives the session of anyone who
opens its page.
"""

from __future__ import annotations

import functools
import socket
from collections.abc import Iterator
from urllib.parse import SplitResult, urlsplit

import psutil
from django.conf import settings
from django.http import HttpRequest
from django.http.request import validate_host
from evenkeel.web_address import address_in, browser_host

_DEFAULT_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}
_NAMES_OF_LOOPBACK = {"localhost", "localhost.localdomain", "localhost6", "ip6-localhost", "ip6-loopback"}
Origin = tuple[str, str, int]


class UnknownAddress(Exception):
    """The request came to an address that is not known to be the portal's."""


def origin_of(url: str) -> Origin | None:
    """Scheme, host and port of a URL, or of a browser's `Origin` header."""
    try:
        parts = urlsplit(url)
        port = parts.port or _DEFAULT_PORTS.get(parts.scheme)
    except ValueError:
        return None
    if not parts.hostname or port is None:
        return None
    return parts.scheme, browser_host(parts.hostname), port


def is_own_origin(origin: str, *, host: str, secure: bool) -> bool:
    """Whether a page of this origin belongs to the portal: it has the scheme and port of the request (with `host` in
    its Host header) and one of the portal's names, or it is listed in EVENKEEL_TRUSTED_ORIGINS, or it is
    EVENKEEL_API_URL."""
    found = origin_of(origin)
    if found is None or origin.count("/") != 2:
        return False
    if found == origin_of(settings.EVENKEEL_API_URL) or _is_trusted(found):
        return True
    scheme = "https" if secure else "http"
    own = origin_of(f"{scheme}://{host}")
    allowed = [name for name in settings.ALLOWED_HOSTS if name != "*"]
    named = own is not None and (found[1] == own[1] or validate_host(_bracketed(found[1]), allowed))
    return named and own is not None and (found[0], found[2]) == (own[0], own[2])


def own_address(request: HttpRequest) -> str:
    """Beginning of links for other people, such as `https://portal.example.org`. The sender of a request chooses host
    and port, which may be a job's own port: links for others only use a port of the portal.

    Raises UnknownAddress if that port is unknown.
    """
    address = f"{request.scheme}://{request.get_host()}"
    origin, trusted = origin_of(address), list(_trusted())
    if origin in [origin_of(one) for one in trusted] or origin == origin_of(settings.EVENKEEL_API_URL):
        return address
    if trusted:
        return trusted[0]
    if origin is not None and origin[2] in (_DEFAULT_PORTS.get(request.scheme or ""), settings.EVENKEEL_PORT):
        return address
    raise UnknownAddress(
        f"{address} is not known to be this portal's address: list the one that people use in EVENKEEL_TRUSTED_ORIGINS."
    )


def leads_here(url: str) -> bool:
    """Whether a browser that opens the URL contacts this machine, or a host that receives the portal's cookies."""
    try:
        host = browser_host(urlsplit(url).hostname or "")
    except ValueError:
        return True
    address = address_in(host)
    if address is not None:
        own = {address_in(name) for name in (*settings.ALLOWED_HOSTS, *_own_hosts())}
        return address.is_loopback or address.is_unspecified or address in own or str(address) in _interfaces()
    if host in _NAMES_OF_LOOPBACK or host.endswith((".localhost", ".localdomain")) or not host:
        return True
    return host in _own_hosts() or validate_host(host, [name for name in settings.ALLOWED_HOSTS if name != "*"])


def has_name_of_its_own() -> bool:
    """HTTPS and a name under which no job can listen: then its cookies are never sent to another server by plain
    HTTP."""
    if not settings.SESSION_COOKIE_SECURE:
        return False
    names = [name for name in settings.EVENKEEL_ALLOWED_HOSTS if name != "*"]
    names += [urlsplit(origin).hostname or "" for origin in settings.CSRF_TRUSTED_ORIGINS]
    return any(address_in(name) is None and not _is_local(name) for name in names if name)


def _is_local(name: str) -> bool:
    name = browser_host(name).strip("[].")
    return name in _NAMES_OF_LOOPBACK or name.endswith(".localhost") or "." not in name


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _trusted() -> Iterator[str]:
    """Origins that are listed by name; wildcards do not tell where the portal is."""
    return (origin.rstrip("/") for origin in settings.CSRF_TRUSTED_ORIGINS if "*" not in origin)


def _is_trusted(found: Origin) -> bool:
    scheme, host, port = found
    for listed in settings.CSRF_TRUSTED_ORIGINS:
        parts: SplitResult = urlsplit(listed.replace("*", "", 1))
        if (scheme, port) != (parts.scheme, parts.port or _DEFAULT_PORTS.get(parts.scheme)):
            continue
        pattern = (parts.hostname or "").lower()
        if (host == pattern.lstrip(".") and "*" not in listed) or ("*" in listed and host.endswith(pattern)):
            return True
    return False


def _own_hosts() -> frozenset[str]:
    urls = [settings.EVENKEEL_API_URL, settings.LOCAL_URL, *settings.CSRF_TRUSTED_ORIGINS]
    named = {browser_host(urlsplit(url).hostname or "") for url in urls}
    return frozenset(named) | _machine_names()


@functools.cache
def _interfaces() -> frozenset[str]:
    """Addresses of this machine at the start of the process."""
    found = (one.address.partition("%")[0] for each in psutil.net_if_addrs().values() for one in each)
    return frozenset(str(address) for one in found if (address := address_in(one)) is not None)


@functools.cache
def _machine_names() -> frozenset[str]:
    """Names that this machine has for itself; its resolver is asked once."""
    names = {socket.gethostname(), socket.getfqdn()}
    return frozenset(name.lower() for name in names if name)
