"""Normal form of e-mail addresses, so that a look-alike address is not a separate account."""

from __future__ import annotations

import unicodedata

import idna

from accounts.text import named

_LONGEST = 254


def normalized(address: str) -> str:
    """In lower case, with its domain in DNS form (`bücher.example` is `xn--bcher-kva.example`) and no trailing dot.
    Invalid domains are unchanged."""
    name, at, domain = address.lower().rpartition("@")
    domain = domain.removesuffix(".")
    if at and not domain.isascii():
        try:
            domain = idna.encode(domain, uts46=True).decode()
        except UnicodeError:
            return f"{name}@{domain}"
    return f"{name}{at}{domain}"


def checked(address: str) -> str:
    """The normal form of an address for a person; ValueError if part of it is another spelling of other letters, such
    as wide letters and ligatures, or if its domain is impossible in DNS."""
    found = normalized(address)
    name, _, domain = found.rpartition("@")
    for character in name:
        if (meant := _plain(character)) != character:
            raise ValueError(f"must not contain {named(character)} before the @: write {meant}")
    if not domain.isascii():
        raise ValueError(f"must have a domain that DNS can have, which {domain!r} is not")
    if len(found) > _LONGEST:
        raise ValueError(f"must have at most {_LONGEST} characters, its domain as DNS has it ({domain})")
    return found


def _plain(character: str) -> str:
    return unicodedata.normalize("NFKC", character).casefold()
