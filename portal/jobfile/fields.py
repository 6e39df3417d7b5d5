"""Types of values in a job file: checked text, sizes, durations, and numbers of an array."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from accounts.text import check_line, one_line, several_lines
from scheduling.validation import StrictNumbers

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(MiB|GiB|TiB|M|G|T|MB|GB|TB)?", re.IGNORECASE | re.ASCII)
_MIB = {
    "": 1,
    "m": 1,
    "mib": 1,
    "mb": 1,
    "g": 1024,
    "gib": 1024,
    "gb": 1024,
    "t": 1024**2,
    "tib": 1024**2,
    "tb": 1024**2,
}
_DURATION = re.compile(r"(?:(\d+)d\s*)?(?:(\d+)h\s*)?(?:(\d+)m\s*)?(?:(\d+(?:\.\d+)?)s?)?", re.ASCII)
_LONGEST_AMOUNT = 100  # length limit of a size or duration; longer texts could make the search slow
_LONGEST = 2 * 1024 * 1024  # longer texts are refused by their length, before anything is parsed


def _one_line(value: object) -> object:
    return one_line(value) if isinstance(value, str) and len(value) <= _LONGEST else value


def line_as_it_is(text: str) -> str:
    """For paths, patterns and addresses, which are only valid exactly as written."""
    check_line(text)
    return text


def _several_lines(value: object) -> object:
    return several_lines(value) if isinstance(value, str) and len(value) <= _LONGEST else value


#: For every text that is shown on one line: names, reasons, labels, keys. The rules are in accounts/text.py.
OneLine = BeforeValidator(_one_line)

#: For commands, variables and other texts of several lines.
SeveralLines = BeforeValidator(_several_lines)


def _amount(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    return pattern.fullmatch(text.strip(" \t\n\r\f\v")) if len(text) <= _LONGEST_AMOUNT else None


def _memory_mib(value: object) -> object:
    """ "8GiB" or a number of MiB."""
    if isinstance(value, str):
        match = _amount(_SIZE, value)
        if not match:
            raise ValueError("write memory as a number of MiB or as 8GiB")
        return int(float(match[1]) * _MIB[(match[2] or "").lower()])
    return value


def _seconds(value: object) -> object:
    """ "1h30m", "90s" or a number of seconds."""
    if isinstance(value, str):
        match = _amount(_DURATION, value)
        if not match or not any(match.groups()):
            raise ValueError("write a duration as seconds or as 1d12h30m")
        days, hours, minutes, seconds = (float(g or 0) for g in match.groups())
        return days * 86_400 + hours * 3_600 + minutes * 60 + seconds
    return value


def _ascii_number(value: object) -> object:
    if isinstance(value, str) and not value.isascii():
        raise ValueError("write a number in the digits 0 to 9")
    return value


#: As text: Python would accept all digits of Unicode.
Amount = Annotated[Decimal, BeforeValidator(_ascii_number)]
Cost = Annotated[Decimal, Field(gt=0, le=10**9, decimal_places=6), BeforeValidator(_ascii_number)]
Line = Annotated[str, Field(max_length=120), OneLine]
Word = Annotated[str, Field(min_length=1, max_length=60, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
Text = Annotated[str, Field(max_length=16_384), SeveralLines]
Seconds = Annotated[float, Field(gt=0, le=366 * 86_400), BeforeValidator(_seconds, json_schema_input_type=float | str)]
Memory = Annotated[int, Field(ge=16, le=64 * 1024**2), BeforeValidator(_memory_mib, json_schema_input_type=int | str)]


class Part(StrictNumbers):
    model_config = ConfigDict(extra="forbid", str_strip_whitespace=True, allow_inf_nan=False)


MAX_ARRAY = 1_000
_RANGE = re.compile(r"(\d{1,6})(?:-(\d{1,6})(?::(\d{1,6}))?)?", re.ASCII)


def _split(value: object) -> object:
    """Slurm's notation: the indices, and the most that run at once after a percent sign."""
    if isinstance(value, int) and not isinstance(value, bool):
        return {"indices": str(value)}
    if isinstance(value, str):
        indices, percent, most = value.partition("%")
        if percent and not re.fullmatch(r"\s*\d{1,6}\s*", most, re.ASCII):
            raise ValueError(f"write after % how many run at once, as 0-15%4; {most[:30]!r} is not a number")
        return {"indices": indices} | ({"max_running": most} if percent else {})
    return value


def _indices(text: str) -> list[int]:
    found: list[int] = []
    for part in text.replace(" ", "").split(","):
        match = _RANGE.fullmatch(part)
        if not match:
            raise ValueError(f"write indices as 0-15, 0-30:2 or 1,3,5-9; {part[:30]!r} is none of these")
        first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        if last < first or step < 1:
            raise ValueError(f"{part!r} counts nothing: write the smaller index first, and steps of 1 or more")
        if len(found) + (last - first) // step + 1 > MAX_ARRAY:
            raise ValueError(f"an array has {MAX_ARRAY:,} jobs at most")
        found += range(first, last + 1, step)
    if len(set(found)) < len(found):
        raise ValueError("an index is named twice")
    return sorted(found)


class ArrayWish(Part):
    """The same job once for each index, which it reads from EVENKEEL_ARRAY_INDEX."""

    indices: Annotated[str, Field(max_length=4_000), OneLine] = Field(
        description="As 0-15, 0-30:2 or 1,3,5-9; 1,000 at most.", examples=["0-15"]
    )
    max_running: int | None = Field(None, ge=1, le=MAX_ARRAY, description="The most that have GPUs at once.")

    @model_validator(mode="after")
    def _countable(self) -> ArrayWish:
        _indices(self.indices)
        return self

    @property
    def numbers(self) -> list[int]:
        """The indices in order."""
        return _indices(self.indices)


#: Also as text: `0-15%4`.
Array = Annotated[ArrayWish, BeforeValidator(_split, json_schema_input_type=ArrayWish | str | int)]
LABEL_KEY = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_./-]{0,62}\Z")
ENV_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_]{0,127}\Z")


def relative_path(path: str) -> str:
    if path.startswith("/") or any(part in ("", ".", "..") for part in path.rstrip("/").split("/")):
        raise ValueError("must be a path below the root, without . and ..")
    return line_as_it_is(path.rstrip("/"))


def glob_pattern(pattern: str) -> str:
    if pattern.count("*") > 8:
        raise ValueError("may have 8 asterisks at most")
    return line_as_it_is(pattern)


Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$", examples=["9f86d0818" + "0" * 55])]
