"""What programs print: lines as a terminal shows them, and only what it may do to the reader's.

A line ends with a line feed and with nothing else: `\\r` goes back to its beginning, so of the states of a progress bar
the last is what is seen, and the other characters that Unicode calls line ends are text.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable

#: The longest sequence whose end is waited for; a longer one is no longer taken for a sequence.
_LONGEST = 4_096
_STRING = r"[\]PX^_]|[\x90\x98\x9d\x9e\x9f]"  # OSC, DCS, SOS, PM and APC, after ESC or as one character
_COLOUR = r"\x1b\[[0-9;:]{0,60}m"
_CONTROLS = re.compile(
    rf"(?P<colour>{_COLOUR})"
    rf"|(?:\x1b(?:[\]PX^_])|[\x90\x98\x9d\x9e\x9f])[^\x07\x1b\x9c\n]{{0,{_LONGEST}}}(?:\x07|\x1b\\|\x9c)?"
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
    r"|\x1b[ -/]*[0-~]?"
    r"|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufff9-\ufffb]"
)
#: The beginning of a sequence, or a `\r`, at the end of a text that goes on.
_UNFINISHED = re.compile(
    rf"(?:\r|\x1b[ -/]*|(?:\x1b\[|\x9b)[0-?]{{0,60}}[ -/]{{0,9}}"
    rf"|(?:\x1b[\]PX^_]|[\x90\x98\x9d\x9e\x9f])[^\x07\x1b\x9c\n]{{0,{_LONGEST}}}\x1b?)\Z"
)


def split_lines(data: bytes) -> list[bytes]:
    """With their line feeds, as `bytes.splitlines(keepends=True)` does with many more ends."""
    lines = data.split(b"\n")
    last = lines.pop()
    return [line + b"\n" for line in lines] + ([last] if last else [])


def last_state(line: str) -> str:
    """What a terminal shows of a line in the end: what follows its last `\\r`. One at the end clears nothing yet."""
    body = line.removesuffix("\n")
    end = line[len(body) :]
    return body.rstrip("\r").rpartition("\r")[2] + end


def shown_lines(text: str) -> list[str]:
    """Lines without their ends, each in its last state, without colours and other sequences."""
    return [plain(last_state(line)) for line in text.removesuffix("\n").split("\n")] if text else []


def plain(text: str) -> str:
    """Without colours and anything else that a terminal would obey, but for `\\r`, `\\n` and tabs."""
    return _CONTROLS.sub("", text)


def coloured(text: str) -> str:
    """Likewise, with its colours."""
    return _CONTROLS.sub(lambda found: found["colour"] or "", text)


def unfinished_bytes(data: bytes) -> int:
    """Bytes at the end that begin a character in UTF-8 without ending it."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(data[-3:] if len(data) > 3 and data[-3] & 0xC0 != 0x80 else data[-4:])
    return len(decoder.getstate()[0])


class TerminalText:
    """The text of a log that comes in pieces, made fit for a terminal: colours pass, sequences that are cut in two are
    taken whole."""

    def __init__(self, *, colours: bool) -> None:
        self._clean = coloured if colours else plain
        self._kept = ""

    def feed(self, text: str, *, last: bool = False) -> str:
        text, self._kept = self._kept + text, ""
        if not last and (found := _UNFINISHED.search(text, max(0, len(text) - _LONGEST))):
            text, self._kept = text[: found.start()], text[found.start() :]
        return self._clean(text)


def join_shown(lines: Iterable[bytes]) -> str:
    """Raw lines as text, each in its last state."""
    return "".join(last_state(line.decode(errors="replace")) for line in lines)
