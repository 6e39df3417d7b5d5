"""Addresses of the web that people and programs give: read once, strictly, as browsers and HTTP clients will."""

from __future__ import annotations

import contextlib
import ipaddress
import re
import socket
from urllib.parse import SplitResult, unquote, urlsplit

MAX_URL = 2_000
#: What RFC 3986 has in URLs. Browsers mend others (spaces, backslashes, line ends), each in its own way.
_CHARACTERS = re.compile(r"[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]*")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
_NUMERIC = re.compile(r"[0-9]+|0[xX][0-9A-Fa-f]*")
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
#: Behind such IPv6 addresses is an IPv4 address (RFC 6052, RFC 3056, RFC 2765, RFC 4291): the prefix, and where that
#: address begins.
_EMBEDDED = (
    (ipaddress.IPv6Network("64:ff9b::/96"), 96),
    (ipaddress.IPv6Network("2002::/16"), 16),
    (ipaddress.IPv6Network("::ffff:0:0:0/96"), 96),
    (ipaddress.IPv6Network("::/96"), 96),
)


def read_url(url: str, *, schemes: tuple[str, ...] = ("https", "http"), most: int = MAX_URL) -> SplitResult:
    """The parts of a URL that every client understands alike. Raises ValueError with what must be otherwise."""
    if len(url) > most:
        raise ValueError(f"may have {most:,} characters at most")
    parts = _split(url)
    if parts.scheme.lower() not in schemes or not parts.hostname:
        raise ValueError(f"must begin with {' or '.join(f'{scheme}://' for scheme in schemes)} and name a host")
    if parts.username is not None or parts.password is not None:
        raise ValueError("must have no user name and no password in it")
    _check_host(parts.hostname)
    try:
        port = parts.port
    except ValueError:
        port = 0
    if (port is not None and not 0 < port < 65_536) or parts.netloc.endswith(":"):
        raise ValueError("must have a port from 1 to 65535, or none")
    rest = url.partition("://")[2][len(parts.netloc) :]
    if not _CHARACTERS.fullmatch(rest) or _BAD_ESCAPE.search(rest):
        raise ValueError("must write other characters than those of a URL as %XX, such as %20 for a space")
    return parts


def _split(url: str) -> SplitResult:
    if any(character.isspace() or not character.isprintable() or character in '\\<>"' for character in url):
        raise ValueError("must be a URL, without spaces, line ends and backslashes")
    try:
        return urlsplit(url)
    except ValueError:
        raise ValueError("must be a URL like https://example.org/path") from None


def _check_host(host: str) -> None:
    if ":" in host:
        try:
            ipaddress.IPv6Address(host)
        except ValueError:
            raise ValueError("must have an IPv6 address in its brackets") from None
        return
    try:
        ascii_host = host if host.isascii() else _to_ascii(host)
    except (UnicodeError, ImportError):
        raise ValueError("must name a host that can be a domain name") from None
    labels = ascii_host.removesuffix(".").split(".")
    if len(ascii_host) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise ValueError("must name a host: letters, digits and dashes between its dots")


def _to_ascii(host: str) -> str:
    import idna  # an environment of a job need not have it

    return idna.encode(host, uts46=True).decode()


def numeric_host(host: str) -> bool:
    """Whether clients take the host for an IPv4 address, however it is spelt."""
    return _NUMERIC.fullmatch(host.removesuffix(".").rpartition(".")[2]) is not None


def address_in(host: str) -> Address | None:
    """The IP address that a browser finds in a host: in decimal, octal or hexadecimal, of fewer parts, within IPv6."""
    host = browser_host(host)
    try:
        if ":" in host:
            return meant(ipaddress.IPv6Address(host.strip("[]").partition("%")[0]))
        return ipaddress.IPv4Address(socket.inet_aton(host)) if numeric_host(host) else None
    except (ValueError, OSError):
        return None


def browser_host(host: str) -> str:
    """As a browser reads it: escapes undone, wide letters and dots made plain, lower case, no dot at the end."""
    host = unquote(host)
    if not host.isascii():
        import idna

        with contextlib.suppress(UnicodeError):
            host = idna.uts46_remap(host, std3_rules=False)
    return host.lower().removesuffix(".")


def meant(address: Address) -> Address:
    """The IPv4 address inside of an IPv6 one, where there is one."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address.ipv4_mapped:
        return address.ipv4_mapped
    if int(address) < 2:  # :: and ::1 are addresses of their own
        return address
    for prefix, bits in _EMBEDDED:
        if address in prefix:
            return ipaddress.IPv4Address(int(address) >> (96 - bits) & 0xFFFFFFFF)
    return address
