"""Series of resources: rows of [seconds, fraction, ...], grouped into equal intervals and compressed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

import zstandard

from scheduling.domain.usage_history import RESOURCES, ResourceHistory

Row = list[float | None]

#: Packed rows of one launch; beyond it two intervals become one.
MOST_ROWS = 720
#: Thousandths are precise enough.
_SCALE = 1_000
_MOST_BYTES = 1 << 24


def pack(rows: Sequence[Row]) -> bytes:
    """By columns, as differences of integers (tenths of a second, thousandths): repeated values take no space."""
    columns = [_differences(round(10 * (row[0] or 0.0)) for row in rows)]
    columns += [[None if row[n] is None else round(_SCALE * (row[n] or 0.0)) for row in rows] for n in _VALUES]
    return zstandard.compress(json.dumps(columns, separators=(",", ":")).encode(), 9)


def unpack(packed: Any) -> list[Row]:
    if not bytes(packed):
        return []
    text = zstandard.ZstdDecompressor().decompress(bytes(packed), max_output_size=_MOST_BYTES)
    times, *columns = json.loads(text)
    at, rows = 0, []
    for difference, *values in zip(times, *columns, strict=True):
        at += difference
        rows.append([at / 10, *(None if value is None else value / _SCALE for value in values)])
    return rows


_VALUES = range(1, 1 + len(RESOURCES))


def _differences(values: Iterable[int]) -> list[int | None]:
    before, found = 0, list[int | None]()
    for value in values:
        found.append(value - before)
        before = value
    return found


def slot(row: Row, interval_s: float) -> int:
    return int((row[0] or 0.0) // interval_s)


def grouped(rows: Iterable[Row], interval_s: float) -> list[Row]:
    """One row for each interval with data: the mean, at its beginning. `rows` are in order of time."""
    found = []
    for number, members in groupby(rows, lambda row: slot(row, interval_s)):
        found.append([number * interval_s, *means(list(members))])
    return found


def means(rows: Sequence[Row]) -> list[float | None]:
    columns = [[value for row in rows if (value := row[n]) is not None] for n in _VALUES]
    return [sum(column) / len(column) if column else None for column in columns]


def bounded(rows: list[Row], interval_s: float, most: int) -> tuple[list[Row], float]:
    """At most this many rows: the interval is doubled until they fit."""
    while len(rows) > most:
        interval_s *= 2
        rows = grouped(rows, interval_s)
    return rows, interval_s


def even(rows: list[Row], interval_s: float) -> tuple[list[Row], float]:
    """A row for every interval from the first on: gaps repeat the previous row. Longer intervals if a gap would make
    too many rows."""
    while (rows[-1][0] or 0.0) - (rows[0][0] or 0.0) > 2 * MOST_ROWS * interval_s:
        interval_s *= 2
        rows = grouped(rows, interval_s)
    by_slot = {slot(row, interval_s): row[1:] for row in rows}
    first, last = min(by_slot), max(by_slot)
    found, values = [], by_slot[first]
    for number in range(first, last + 1):
        values = by_slot.get(number, values)
        found.append([(number - first) * interval_s, *values])
    return found, interval_s


def history_of(rows: Sequence[Row], interval_s: float, share: float) -> ResourceHistory | None:
    """For policies, which need a number everywhere. Unknown values are assumed: all cores busy while the GPU is, memory
    of its share, no PCIe traffic. None if the GPU's utilisation is unknown."""
    if not rows or any(row[1] is None for row in rows):
        return None
    gpu = tuple(row[1] or 0.0 for row in rows)
    instead = (gpu, (share,) * len(rows), gpu, (0.0,) * len(rows))
    found = [
        tuple(
            other if row[n] is None else float(row[n] or 0.0) for row, other in zip(rows, instead[n - 1], strict=True)
        )
        for n in _VALUES
    ]
    return ResourceHistory(interval_s, *found)
