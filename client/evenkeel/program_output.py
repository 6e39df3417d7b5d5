"""What programs print: lines as a terminal shows them, and only what it may do to the reader's.

A line ends with a line feed and with nothing else: `\\r` goes back to its beginning, so of the states of a progress bar
the last is what is seen, and the other characters that Unicode calls line ends are text.
"""

from __future__ import annotations

import re

#: The longest sequence whose end is waited for; what is longer is not taken for one.
_LONGEST = 4_096
_STRING = r"(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])"  # OSC, DCS, SOS, PM and APC begin so, and go on to their terminator
#: Of a colour: a number, or one with those that say which of many.
_PARAMETER = re.compile(r"(?:[345]8;(?:5;\d*|2;\d*;\d*;\d*)|[^;]+)")
#: Blinking, and hidden.
_UNSEEN = frozenset(("5", "6", "8"))
_CONTROLS = re.compile(
    r"(?P<colour>\x1b\[[0-9;:]{0,60}m)"
    rf"|{_STRING}[^\x07\x1b\x9c\n]{{0,{_LONGEST}}}(?:\x07|\x1b\\|\x9c)?"
    r"|(?:\x1b\[|\x9b)[0-?]{0,60}[ -/]{0,9}[@-~]?"
    r"|\x1b[ -/]{0,9}[0-~]?"
    r"|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufff9-\ufffb]"
)
#: The beginning of a sequence at the end of a text that goes on.
_UNFINISHED = re.compile(
    rf"(?:{_STRING}[^\x07\x1b\x9c\n]{{0,{_LONGEST}}}\x1b?|(?:\x1b\[|\x9b)[0-?]{{0,60}}[ -/]{{0,9}}|\x1b[ -/]{{0,9}})\Z"
)
RESET = "\x1b[0m"


def split_lines(data: bytes) -> list[bytes]:
    """With their line feeds."""
    lines = data.split(b"\n")
    last = lines.pop()
    return [line + b"\n" for line in lines] + ([last] if last else [])


def last_state(line: bytes) -> bytes:
    """What a terminal shows of a line: what follows its last `\\r`. One at its end clears nothing yet."""
    end = b"\n" if line.endswith(b"\n") else b""
    return line.removesuffix(b"\n").rstrip(b"\r").rpartition(b"\r")[2] + end


def shown_lines(data: bytes) -> list[str]:
    """Lines without their ends, each in its last state, without colours and other sequences."""
    return [plain(last_state(line).decode(errors="replace")).rstrip("\n") for line in split_lines(data)]


def plain(text: str) -> str:
    """Without colours and anything else that a terminal would obey, but for `\\r`, `\\n` and tabs."""
    return _CONTROLS.sub("", text)


def coloured(text: str) -> str:
    """Likewise, with its colours; nothing blinks or is hidden."""
    return _CONTROLS.sub(lambda found: _seen(found["colour"] or ""), text)


def _seen(colour: str) -> str:
    parameters = _PARAMETER.findall(colour[2:-1])
    kept = [one for one in parameters if one.lstrip("0") not in _UNSEEN]
    if len(kept) == len(parameters):
        return colour
    return f"\x1b[{';'.join(kept)}m" if kept else ""


def unfinished_bytes(data: bytes) -> int:
    """Bytes at the end that begin a character in UTF-8 without ending it."""
    for back in range(1, min(3, len(data)) + 1):
        byte = data[-back]
        if 0xC2 <= byte <= 0xF4:
            needed = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return back if back < needed else 0
        if not 0x80 <= byte < 0xC0:
            return 0
    return 0


class ShownText:
    """A log that comes in pieces, as a reader gets it: of all sequences only colours, and these only on a terminal.
    A sequence that is cut in two is taken for one."""

    def __init__(self, *, colours: bool) -> None:
        self._colours, self._kept, self._is_coloured = colours, "", False

    def feed(self, text: str) -> str:
        text, self._kept = self._kept + text, ""
        # Searched from the first escape: from each of many characters it would be looked for to the end.
        begins = max(text.rfind(one) for one in "\x1b\x90\x98\x9b\x9d\x9e\x9f")
        found = _UNFINISHED.search(text, max(0, begins - 1)) if begins >= 0 else None
        if found:
            text, self._kept = text[: found.start()], text[found.start() :]
        shown = coloured(text) if self._colours else plain(text)
        self._is_coloured |= "\x1b" in shown
        return shown

    def close(self) -> str:
        """What was waited for, and the terminal's own colours."""
        rest, self._kept = plain(self._kept), ""
        return rest + (RESET if self._is_coloured else "")
