"""Reads text files row by row; errors name line and column."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from math import isfinite
from pathlib import Path

from scheduling.errors import InvalidInput
from scheduling.input_files import check_header, lines
from scheduling.simulator.inputs.hardware import MOST_GPUS

MOST_JOBS = 5_000_000
#: Only ASCII digits; float() would also accept `1_000` and digits of other scripts.
_NUMBER = re.compile(r"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?|inf|infinity|nan)", re.ASCII | re.IGNORECASE)


class Row:
    """One row with the place it came from."""

    __slots__ = ("_values", "line", "path")

    def __init__(self, path: Path, line: int, values: Mapping[str, str]) -> None:
        self.path, self.line, self._values = path, line, values

    def __contains__(self, column: str) -> bool:
        """The cell exists and is not empty."""
        return bool(self._values.get(column, "").strip())

    def has_column(self, column: str) -> bool:
        """The column exists: if it does, an empty cell does not mean the default."""
        return column in self._values

    def text(self, column: str) -> str:
        try:
            return self._values[column].strip()
        except KeyError:
            raise self.error(column, "it is missing") from None

    def number(self, column: str, least: float = 0.0) -> float:
        text = self.text(column)
        if not _NUMBER.fullmatch(text):
            raise self.error(column, f"{text[:60]!r} is not a number")
        value = float(text)
        if not isfinite(value) or value < least:
            raise self.error(column, f"{text[:60]!r} must be a finite number of at least {least:g}")
        return value

    def integer(self, column: str, least: int = 0, most: int = 10**9) -> int:
        value = self.number(column, least)
        if value != int(value) or value > most:
            raise self.error(column, f"{self.text(column)[:60]!r} must be a whole number of at most {most:,}")
        return int(value)

    def gpus(self, column: str, least: int = 1) -> int:
        return self.integer(column, least, MOST_GPUS)

    def moment(self, column: str) -> datetime:
        """An ISO 8601 time; naive if it has no zone."""
        text = self.text(column)
        try:
            return datetime.fromisoformat(text)
        except ValueError:
            raise self.error(column, f"{text[:60]!r} is not a time as 2017-10-09 07:01:55") from None

    def error(self, column: str, what: str) -> InvalidInput:
        return InvalidInput(f"{self.path}, line {self.line}, column {column}: {what}")


def table(path: Path, delimiter: str = ",") -> Iterator[Row]:
    """Rows of a file whose first line names the columns."""
    # with line ends: within quotes they belong to the cell
    reader = csv.reader((f"{text}\n" for _, text in lines(path)), delimiter=delimiter, strict=True)
    header: list[str] = []
    try:
        for fields in reader:
            if not any(field.strip() for field in fields):
                continue
            if not header:
                header = [field.strip() for field in fields]
                check_header(path, reader.line_num, header)
                continue
            yield make_row(path, reader.line_num, header, fields)
    except csv.Error as error:
        raise InvalidInput(f"{path}, line {reader.line_num}: {error}") from None


def comma_separated(path: Path, number: int, text: str) -> list[str]:
    """The cells of a line that is a complete row."""
    try:
        return next(csv.reader([text], strict=True))
    except csv.Error as error:
        raise InvalidInput(f"{path}, line {number}: {error}") from None


def make_row(path: Path, line: int, names: Sequence[str], fields: Sequence[str]) -> Row:
    if len(fields) != len(names):
        where = names[len(fields)] if len(fields) < len(names) else str(len(names) + 1)
        raise InvalidInput(f"{path}, line {line}, column {where}: {len(fields)} columns where {len(names)} are needed")
    return Row(path, line, dict(zip(names, fields, strict=True)))


def header(text: str, delimiter: str = ",") -> set[str]:
    """Column names in the first line."""
    first = text.split("\n", 1)[0]
    return {name.strip().strip('"') for name in first.split(delimiter)}
