"""Rules for texts that people enter: names and other texts of one line, and texts of several lines."""

from __future__ import annotations

import re
import unicodedata
from itertools import groupby

#: Invisible or like a space, although Unicode counts them as letters, marks or symbols.
_BLANK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\ufe00-\ufe0e\uffa0\U000e0100-\U000e01ef]"
)
_UNSHOWN = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))
_JOINER, _AS_EMOJI, _KEYCAP = "\u200d", "\ufe0f", "\u20e3"
#: Scripts need four or five over one letter; more overlap the lines above.
MOST_MARKS = 8
#: Forbidden in several lines: characters that change the direction of other text, end a line invisibly, or control a
#: terminal.
_DRIVING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
#: Right-to-left letters, and marks that change the direction: as in frontend/src/lib/isolated.ts.
_TURNING = (
    "[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff\U00010800-\U00010fff\U0001e800-\U0001efff"
    "\u200f\u202a-\u202e\u2066-\u2069]"
)
#: From the first of them to the last before a letter of another script or a mark that ends a clause.
_TURNED = re.compile(rf"{_TURNING}(?:(?:(?![:;,.()\n])[\W\d_])*{_TURNING})*")


def one_line(text: str) -> str:
    """The text in normal form C with plain, trimmed spaces; ValueError if part of it would be invisible."""
    text = _plainly_spaced(unicodedata.normalize("NFC", text)).strip()
    check_line(text)
    return text


def check_line(text: str) -> None:
    """Refuses what `one_line` refuses, for a text that must not change, such as a path; raises ValueError."""
    if text.isascii() and text.isprintable():
        return
    for at, character in enumerate(text):
        if _is_unshown(character) and not _is_of_emoji(text, at):
            raise ValueError(f"must not contain {named(character)}, which is invisible in a line of text")
    if _is_mark(text[:1]):
        raise ValueError(f"must not begin with {named(text[0])}, which changes the character before it")
    if any(len(list(run)) > MOST_MARKS for is_mark, run in groupby(text, _is_mark) if is_mark):
        raise ValueError(f"must not have more than {MOST_MARKS} marks over one letter")


def several_lines(text: str) -> str:
    """The text with line feeds as line ends; ValueError if it would control a terminal or change its direction."""
    text = text.replace("\r\n", "\n")
    if found := _DRIVING.search(text):
        line = text.count("\n", 0, found.start()) + 1
        raise ValueError(
            f"must not contain {named(found[0])} (line {line}): of characters that are not seen only "
            "tabs and line ends are allowed"
        )
    return text


def shown(text: object, most: int = 0) -> str:
    """Another person's text for one line of a sentence, at most `most` characters long; characters that are forbidden
    in names become spaces."""
    line = unicodedata.normalize("NFC", str(text))
    if not (line.isascii() and line.isprintable()):
        line = "".join(c if not _is_unshown(c) or _is_of_emoji(line, at) else " " for at, c in enumerate(line))
    line = " ".join(line.split())
    return f"{line[: most - 1]}…" if 0 < most < len(line) else line


def isolated(text: str) -> str:
    """A sentence in which right-to-left names do not affect the direction of the rest (FSI, PDI)."""
    return text if text.isascii() else _TURNED.sub("\u2068\\g<0>\u2069", text)


def _plainly_spaced(text: str) -> str:
    """No-break, wide and narrow spaces look like a space, so two names could differ by them alone."""
    return text if text.isascii() else "".join(" " if unicodedata.category(c) == "Zs" else c for c in text)


def named(character: str) -> str:
    """As `U+202E (right-to-left override)`."""
    control = "control character" if unicodedata.category(character) == "Cc" else ""
    ends = {"\n": "line feed", "\r": "carriage return", "\t": "tab"}
    name = ends.get(character) or unicodedata.name(character, control)
    return f"U+{ord(character):04X}" + (f" ({name.lower()})" if name else "")


def _is_mark(character: str) -> bool:
    return bool(character) and unicodedata.category(character).startswith("M")


def _is_unshown(character: str) -> bool:
    category = unicodedata.category(character)
    if category == "Cn":  # newer emoji than this Python knows
        return not "\U0001f000" <= character <= "\U0001faff"
    return category in _UNSHOWN or character == _AS_EMOJI or bool(_BLANK.match(character))


def _is_of_emoji(text: str, at: int) -> bool:
    """Whether the character joins two emoji, or selects the coloured form of one."""
    before, after = text[at - 1 : at], text[at + 1 : at + 2]
    if text[at] == _JOINER:
        return _ends_emoji(before) and _is_symbol(after)
    return text[at] == _AS_EMOJI and (_is_symbol(before) or (after == _KEYCAP and before in set("0123456789#*")))


def _ends_emoji(character: str) -> bool:
    return _is_symbol(character) or character == _AS_EMOJI


def _is_symbol(character: str) -> bool:
    if not character or character == "\u2800":
        return False
    is_emoji = "\U0001f000" <= character <= "\U0001faff" or character in "‼⁉"
    return is_emoji or unicodedata.category(character) in ("So", "Sm", "Sk")
