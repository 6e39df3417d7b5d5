"""How wide text is on a terminal: wide characters and emoji take two columns, marks none."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

_JOINER, _AS_EMOJI = "\u200d", "\ufe0f"


def clean(value: object) -> str:
    """One line without anything a terminal would obey; emoji that are joined stay whole."""
    text = str(value)
    if text.isascii() and text.isprintable():
        return text
    return "".join(one if one.isprintable() or _joins(text, at) else " " for at, one in enumerate(text))


def display_width(text: str) -> int:
    return sum(width for _, width in _pieces(text))


def fitted(text: str, width: int) -> str:
    """The text, cut where it is wider."""
    if display_width(text) <= width:
        return text
    taken, kept = 0, ""
    for piece, of_piece in _pieces(text):
        if taken + of_piece > width - 1:
            break
        taken, kept = taken + of_piece, kept + piece
    return f"{kept}…"


def padded(text: str, width: int, *, right: bool = False) -> str:
    """With spaces after it, or before it, to be as wide."""
    spaces = " " * (width - display_width(text))
    return spaces + text if right else text + spaces


def _pieces(text: str) -> Iterator[tuple[str, int]]:
    """What takes columns together: a letter with its marks, an emoji with all that is joined to it."""
    piece, width, joined = "", 0, False
    for character in text:
        if piece and (joined or _adds_nothing(character)):
            piece += character
            width = 2 if character == _AS_EMOJI else width
        else:
            if piece:
                yield piece, width
            piece, width = character, _width(character)
        joined = character == _JOINER
    if piece:
        yield piece, width


def _adds_nothing(character: str) -> bool:
    """A mark, a joiner, or the colour of a skin."""
    return "\U0001f3fb" <= character <= "\U0001f3ff" or unicodedata.category(character) in ("Mn", "Me", "Cf")


def _width(character: str) -> int:
    if _adds_nothing(character) and not "\U0001f3fb" <= character <= "\U0001f3ff":
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _joins(text: str, at: int) -> bool:
    if text[at] != _JOINER or not 0 < at < len(text) - 1:
        return False
    before = text[at - 2 : at - 1] if text[at - 1] == _AS_EMOJI else text[at - 1]
    return all(one and unicodedata.category(one) in ("So", "Sk", "Sm", "Cn") for one in (before, text[at + 1]))
