"""Keeps secret values out of what is written: as they are, and as people print them (base64, URL, JSON)."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote, quote_plus

MASK = b"[redacted]"
MIN_BYTES = 6  # shorter ones would hide half of every log; no secret may be shorter
_MIN_LINE = 16  # of a value with several lines
_BASE64_ROW = 76


class Redactor:
    """Replaces every form of the values; without values it changes nothing."""

    def __init__(self, values: Iterable[str]) -> None:
        forms = {form for value in values for form in _forms(value.encode()) if len(form) >= MIN_BYTES}
        self.patterns = sorted(forms, key=len, reverse=True)
        self._pattern = re.compile(b"|".join(re.escape(form) for form in self.patterns)) if forms else None

    def clean(self, data: bytes) -> bytes:
        return self._pattern.sub(MASK, data) if self._pattern else data

    def clean_text(self, text: str) -> str:
        if self._pattern is None:
            return text
        return self.clean(text.encode(errors="surrogatepass")).decode(errors="surrogatepass")

    def clean_object(self, value: Any) -> Any:
        """Every text in a JSON value, names included."""
        if self._pattern is None:
            return value
        if isinstance(value, str):
            return self.clean_text(value)
        if isinstance(value, dict):
            return {self.clean_text(str(name)): self.clean_object(inner) for name, inner in value.items()}
        return [self.clean_object(inner) for inner in value] if isinstance(value, list | tuple) else value

    def stream(self) -> RedactedStream:
        return RedactedStream(self)

    def cut(self, data: bytes) -> tuple[bytes, bytes]:
        """(what may be written, cleaned; what may be the beginning of a value and must wait)."""
        if self._pattern is None:
            return data, b""
        keep_from, done, out = self._unfinished(data), 0, []
        for match in self._pattern.finditer(data):
            if match.start() >= keep_from:
                break
            out += [data[done : match.start()], MASK]
            done = match.end()
            keep_from = max(keep_from, done)
        return b"".join([*out, data[done:keep_from]]), data[keep_from:]

    def _unfinished(self, data: bytes) -> int:
        """Where the earliest end of `data` begins that some pattern begins with, without being all of it."""
        earliest = len(data)
        for pattern in self.patterns:
            at = data.find(pattern[:1], max(0, len(data) - len(pattern) + 1), earliest)
            while at >= 0:
                if pattern.startswith(data[at:]):
                    earliest = at
                    break
                at = data.find(pattern[:1], at + 1, earliest)
        return earliest


class RedactedStream:
    """The same for text that comes in pieces, wherever it was cut."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor, self._waiting = redactor, b""

    def feed(self, data: bytes) -> bytes:
        ready, self._waiting = self._redactor.cut(self._waiting + data)
        return ready

    def close(self) -> bytes:
        """What waited for more."""
        data, self._waiting = self._redactor.clean(self._waiting), b""
        return data


def _forms(value: bytes) -> Iterable[bytes]:
    yield value
    yield value.rstrip(b"\r\n")
    yield from (line.strip() for line in value.splitlines() if len(line.strip()) >= _MIN_LINE)
    text = value.decode()
    yield quote(text, safe="").encode()
    yield quote_plus(text).encode()
    yield json.dumps(text)[1:-1].encode()
    yield json.dumps(text, ensure_ascii=False)[1:-1].encode()
    yield from _base64_forms(value)


def _base64_forms(value: bytes) -> Iterable[bytes]:
    """The value by itself, with and without a newline; as far as it alone decides the characters, wherever in a longer
    text it began; and in rows."""
    for alone in (base64.b64encode(value), base64.b64encode(value + b"\n")):
        for form in (alone, alone.translate(bytes.maketrans(b"+/", b"-_"))):
            yield form
            yield form.rstrip(b"=")
    for shift in range(3):
        whole = base64.b64encode(b"\0" * shift + value)
        first, last = -(-shift * 8 // 6), (shift + len(value)) * 8 // 6
        certain = whole[first:last]
        for form in (certain, certain.translate(bytes.maketrans(b"+/", b"-_"))):
            yield form
            if shift == 0 and len(form) > _BASE64_ROW:
                rows = (form[start : start + _BASE64_ROW] for start in range(0, len(form), _BASE64_ROW))
                yield from (row for row in rows if len(row) >= _MIN_LINE)
