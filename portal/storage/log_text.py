"""Text of a log in one or several files: its end, a range, and search.

Lines are as a terminal shows them (evenkeel.program_output): only a line feed ends one, and the last state of a
progress bar counts. Work is bounded by bytes, however long lines are: a call reads little more than SCAN_BYTES, and a
search advances by as much.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate

from evenkeel.program_output import last_state, split_lines, unfinished_bytes

SCAN_BYTES = 8 * 1024 * 1024
#: Length of a line in an answer; the rest is cut, which the answer shows.
LINE_BYTES = 16 * 1024
#: Reading continues to the end of the line in which a scan ends; a longer line is searched in pieces.
_AHEAD_BYTES = 64 * 1024
#: Part of a long line shown before the match.
_BEFORE_CHARACTERS = 400
_LEAST_BYTES = 1_000

#: (offset, at most this many bytes) -> bytes; fewer at the end.
Read = Callable[[int, int], bytes]


@dataclass(frozen=True, slots=True)
class Chunk:
    offset: int
    next_offset: int
    size: int
    text: str


def whole_size(read: Read, size: int) -> int:
    """Without an incomplete last character."""
    end = read(max(0, size - 4), 4)
    return size - unfinished_bytes(end)


def chunk_of(read: Read, size: int, offset: int, limit: int) -> Chunk:
    """A range as text, as it was written, cut between characters."""
    offset = min(offset, size)
    data = read(offset, min(limit, size - offset))
    if offset + len(data) < size:
        data = data[: len(data) - unfinished_bytes(data)] or data
    return Chunk(offset, offset + len(data), size, data.decode(errors="replace"))


def tail_of(read: Read, size: int, lines: int, limit: int) -> Chunk:
    """The last lines that fit into the limit; the beginning of very long ones."""
    found: list[bytes] = []
    for span in (limit, SCAN_BYTES):
        start = max(0, size - span)
        found = split_lines(read(start, size - start))
        if start == 0 or len(found) > lines:
            break
    if start and len(found) > 1:
        found = found[1:]  # its beginning is missing
    shown: list[str] = []
    taken = length = 0
    for line in reversed(found[-lines:]):
        text = _cut(last_state(line).decode(errors="replace"), 0, min(LINE_BYTES, limit), len(line))
        if shown and length + len(text.encode()) > limit:
            break
        shown.append(text)
        taken, length = taken + len(line), length + len(text.encode())
    return Chunk(size - taken, size, size, "".join(reversed(shown)))


def search_of(read: Read, size: int, wanted: str, offset: int, limit: int) -> Chunk:
    """Lines that contain `wanted`, ignoring case; `next_offset` is where the search stopped."""
    offset = min(offset, size)
    data = read(offset, min(SCAN_BYTES, size - offset))
    ends_at, again = offset + len(data), 0
    if ends_at < size and not data.endswith(b"\n"):
        ahead = read(ends_at, min(_AHEAD_BYTES, size - ends_at))
        rest = ahead[: ahead.find(b"\n") + 1]
        data, ends_at = data + rest, ends_at + len(rest)
        if not rest and len(data) == SCAN_BYTES:  # a very long line: a match that begins here may end in the next piece
            again = min(4 * len(wanted) + 4, len(data) // 2)
    matching: list[str] = []
    word, length, at = fold(wanted), 0, offset
    for line in _lines_if_there(data, word):
        text = _matching_state(line, word, limit)
        if text is not None:
            if matching and length + len(text.encode()) > limit:
                return Chunk(offset, at, size, "".join(matching))
            matching.append(text)
            length += len(text.encode())
        at += len(line)
    return Chunk(offset, ends_at - again, size, "".join(matching))


def search_tail_of(read: Read, size: int, wanted: str, lines: int, limit: int) -> Chunk:
    """The newest matching lines."""
    start = max(0, size - SCAN_BYTES)
    matching: list[str] = []
    word, length = fold(wanted), 0
    for line in reversed(_lines_if_there(read(start, size - start), word)):
        if len(matching) < lines and (text := _matching_state(line, word, limit)) is not None:
            length += len(text.encode())
            if matching and length > limit:
                break
            matching.append(text)
    return Chunk(start, size, size, "".join(reversed(matching)))


def fold(text: str) -> str:
    """For comparison: without case, in one normal form."""
    return text.lower() if text.isascii() else unicodedata.normalize("NFC", text).casefold()


def _lines_if_there(data: bytes, word: str) -> list[bytes]:
    """None if no line matches: one search of all text takes a tenth of a search in each line."""
    return split_lines(data) if word in fold(data.decode(errors="replace")) else []


def _matching_state(line: bytes, word: str, limit: int) -> str | None:
    """The displayed state of a matching line: its last state, or the last one that matches."""
    whole = line.decode(errors="replace")
    if word not in fold(whole):
        return None
    end = "\n" if whole.endswith("\n") else ""
    for state in _states(whole.removesuffix("\n")):
        if (at := fold(state).find(word)) >= 0:
            return _cut(state + end, _place(state, at), min(LINE_BYTES, limit), len(line))
    return _cut(last_state(line).decode(errors="replace"), 0, min(LINE_BYTES, limit), len(line))


def _states(line: str) -> Iterator[str]:
    """Last one first."""
    end = len(line)
    while end >= 0:
        start = line.rfind("\r", 0, end) + 1
        yield line[start:end]
        end = start - 1


def _place(text: str, at: int) -> int:
    """The position in the text of the character at `at` of the folded text."""
    if text.isascii():
        return at
    ends = accumulate(len(fold(character)) for character in text)
    return next((place for place, end in enumerate(ends) if end > at), 0)


def _cut(text: str, at: int, limit: int, line_bytes: int) -> str:
    """The line or, if it is longer than the limit, the part around `at`."""
    if len(text) <= limit and len(text.encode()) <= limit:
        return text
    end = "\n" if text.endswith("\n") else ""
    start = max(0, at - _BEFORE_CHARACTERS) if at > limit // 2 else 0
    head = "…" if start else ""
    said = f"… [cut: a line of {line_bytes:,} bytes]"
    room = limit - len((head + said + end).encode())
    if room < _LEAST_BYTES:  # no room for a note about it
        head, said, room = "", "", max(1, limit - len(end))
    part = text[start : start + room].removesuffix("\n").encode()[:room].decode(errors="ignore")
    return f"{head}{part or '…'}{said}{end}"
