"""YAML as job files are written in it: one strict reader for the command line and the portal.

A value means what it looks like. Only `true` and `false` are booleans; a whole number is decimal; dates, `1:30`, `010`,
`0x10`, `1_000`, `1e3`, `yes` and `on` are text until a field reads them. Keys are text. Aliases, tags, doubled keys and
a second document are refused, and so is a date that does not exist.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import yaml

MAX_DEPTH = 32
MAX_VALUES = 50_000
#: No field of a job file has more; longer ones are text that lacks its quotes.
MAX_DIGITS = 30
# With libyaml a file of 250 KB takes a tenth of the time; wheels of PyYAML bring it.
_PARSER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
#: JSON writes a character beyond U+FFFF as two escapes, of which YAML knows neither.
_PAIR = re.compile(r"((?<!\\)(?:\\\\)*)\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")
_UNREADABLE = re.compile(r"[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
#: What to do about what the parser says in its own words.
_ADVICE = {
    "mapping values are not allowed": "put text with a colon and a space in quotes",
    "cannot start any token": "indent with spaces, not tabs, and put text that begins so in quotes",
    "a tab character": "indent with spaces",
}
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_WHOLE = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_DECIMAL = re.compile(r"[-+]?(?:(?:0|[1-9][0-9]*)\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_NO_NUMBER = re.compile(r"[-+]?\.(?:inf|Inf|INF|nan|NaN|NAN)")
_DATE = re.compile(
    r"(\d{4})-(\d\d?)-(\d\d?)(?:(?:[Tt]|[ \t]+)(\d\d?):(\d\d)(?::(\d\d))?(?:[.:Zz+\- \t].*)?)?", re.ASCII
)


class YamlProblem(ValueError):
    """What cannot be read, and where: `line 3, column 5: ...`."""

    def __init__(self, line: int, column: int, problem: str) -> None:
        super().__init__(f"line {line}, column {column}: {problem}")


def load(text: str) -> Any:
    """The one document in `text` as plain values; None where there is none. Raises YamlProblem."""
    text = text.removeprefix("\ufeff")
    if wrong := _UNREADABLE.search(text):
        before = text[: wrong.start()]
        column = wrong.start() - before.rfind("\n")
        raise YamlProblem(before.count("\n") + 1, column, f"character U+{ord(wrong[0]):04X} is not allowed in YAML")
    if text.lstrip()[:1] in ("{", "["):
        text = _PAIR.sub(_joined, text)
    try:
        return _Reader(yaml.parse(text, Loader=_PARSER)).document()
    except yaml.MarkedYAMLError as error:
        problem = ", ".join(part for part in (error.context, error.problem) if part)
        problem = "; ".join([problem, *(advice for words, advice in _ADVICE.items() if words in problem)])
        raise _problem(error.problem_mark or error.context_mark, problem or "this is not YAML") from None
    except (yaml.YAMLError, RecursionError) as error:
        raise YamlProblem(1, 1, f"this is not YAML: {' '.join(str(error).split())[:200]}") from None


def _joined(pair: re.Match[str]) -> str:
    high, low = int(pair[2], 16), int(pair[3], 16)
    return f"{pair[1]}{chr(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))}"


def _problem(mark: Any, problem: str) -> YamlProblem:
    return YamlProblem(mark.line + 1, mark.column + 1, problem) if mark else YamlProblem(1, 1, problem)


class _Reader:
    """Builds values from the parser's events: nothing is composed before it is checked, so size bounds the work."""

    def __init__(self, events: Iterator[Any]) -> None:
        self._events = events
        self._values = 0

    def document(self) -> Any:
        next(self._events)  # the stream begins
        if isinstance(next(self._events), yaml.StreamEndEvent):
            return None
        value = self._value(next(self._events), 0)
        next(self._events)  # the document ends
        more = next(self._events)
        if not isinstance(more, yaml.StreamEndEvent):
            raise _problem(more.start_mark, "a second document begins here: a file has one")
        return value

    def _value(self, event: Any, depth: int) -> Any:
        self._check(event, depth)
        if isinstance(event, yaml.ScalarEvent):
            return event.value if event.style else _plain(event)
        if isinstance(event, yaml.SequenceStartEvent):
            found = []
            while not isinstance(item := next(self._events), yaml.SequenceEndEvent):
                found.append(self._value(item, depth + 1))
            return found
        return self._mapping(depth)

    def _mapping(self, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        seen: set[str] = set()
        while not isinstance(key := next(self._events), yaml.MappingEndEvent):
            name = self._key(key, depth + 1)
            before = len(seen)
            seen.add(name if name.isascii() else unicodedata.normalize("NFC", name))
            if len(seen) == before:
                raise _problem(key.start_mark, f"{_shown(name)} is given twice")
            found[name] = self._value(next(self._events), depth + 1)
        return found

    def _key(self, event: Any, depth: int) -> str:
        """As it is written: `1` and "1" are one key."""
        self._check(event, depth)
        if not isinstance(event, yaml.ScalarEvent):
            raise _problem(event.start_mark, "a key must be text, not a list or a mapping")
        if not event.style and event.value == "<<":
            raise _problem(event.start_mark, "merge keys (<<) are not allowed: write the keys out")
        if not event.style and event.value in ("", "~"):
            raise _problem(event.start_mark, "a key is missing before the colon")
        return str(event.value)

    def _check(self, event: Any, depth: int) -> None:
        if isinstance(event, yaml.AliasEvent):
            raise _problem(event.start_mark, "aliases are not allowed: write the value out")
        if event.anchor:
            raise _problem(event.start_mark, f"anchors (&{event.anchor[:40]}) are not allowed: write the value out")
        if event.tag:
            raise _problem(event.start_mark, "tags (!) are not allowed: put text in quotes, and write numbers plainly")
        if depth > MAX_DEPTH:
            raise _problem(event.start_mark, f"this is nested too deeply: {MAX_DEPTH} levels are allowed")
        self._values += 1
        if self._values > MAX_VALUES:
            raise _problem(event.start_mark, f"there are too many values: {MAX_VALUES:,} are allowed")


def _plain(event: Any) -> Any:
    """What text without quotes means."""
    text: str = event.value
    if text in _NULLS:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if _WHOLE.fullmatch(text):
        if len(text) > MAX_DIGITS:
            raise _problem(event.start_mark, f"a number has {MAX_DIGITS} digits at most; put text in quotes")
        return int(text)
    if _DECIMAL.fullmatch(text):
        number = float(text)
        if abs(number) == float("inf"):
            raise _problem(event.start_mark, f"{_shown(text)} is too large a number; put text in quotes")
        return number
    if _NO_NUMBER.fullmatch(text):
        raise _problem(event.start_mark, f"{text} is not allowed: write a number, or put text in quotes")
    if (date := _DATE.fullmatch(text)) and not _exists(date):
        raise _problem(event.start_mark, f"there is no date {_shown(text)}; put text in quotes")
    return text


def _exists(date: re.Match[str]) -> bool:
    try:
        datetime(*(int(part or 0) for part in date.groups()))  # type: ignore[arg-type]  # noqa: DTZ001 - only whether
    except ValueError:
        return False
    return True


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:60]}...")
