"""How much a run may report of its metrics: names, points and bytes.

What exceeds them is dropped, with one event of the run: numbers for a chart must not fill the disk.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from accounts.text import shown

NAMES_A_POINT = 50
NAMES_A_RUN = 200
NAME_CHARACTERS = 60
REPORT_BYTES = 64 * 1024
#: For reports in quick succession, as after a lost connection: less, but at least the second.
BYTES_A_SECOND, LEAST_BYTES = 32 * 1024, 8 * 1024
#: Approximate size of a stored point or value without its name.
_POINT_BYTES, _VALUE_BYTES = 64, 24
#: The runner's own metrics, besides the program's.
OWN = frozenset({"steps_per_s"})
NOTICE = (
    f"metrics beyond the limits were dropped: a run may have {NAMES_A_RUN} names, a point {NAMES_A_POINT} of them, "
    f"and a report {REPORT_BYTES // 1024} KiB."
)

Metric = Mapping[str, float | None]


@dataclass(slots=True)
class MetricBounds:
    """Limits of one report."""

    names: Sequence[str]  # names that the run had before
    since_s: float | None  # time of its last report; None: there was none
    dropped: bool = False
    new_names: list[str] = field(default_factory=list)

    def keep(self, metrics: Sequence[Metric]) -> Iterator[tuple[Metric, dict[str, float]]]:
        """(metric, its values within the limits), as long as bytes are left."""
        known, left = set(self.names), self._bytes()
        for metric in metrics:
            values = self._values(metric, known)
            left -= _POINT_BYTES + sum(len(name.encode()) + _VALUE_BYTES for name in values)
            if left < 0:
                self.dropped = True
                return
            yield metric, values

    def _bytes(self) -> int:
        if self.since_s is None:
            return REPORT_BYTES
        return max(LEAST_BYTES, min(REPORT_BYTES, int(self.since_s * BYTES_A_SECOND)))

    def _values(self, metric: Metric, known: set[str]) -> dict[str, float]:
        values: dict[str, float] = {}
        for given, value in metric.items():
            name = shown(given)[:NAME_CHARACTERS]
            if given in ("step", "at") or value is None or not name:
                continue
            if name not in OWN and not self._has_room(name, values, known):
                self.dropped = True
                continue
            values[name] = value
        return values

    def _has_room(self, name: str, values: Mapping[str, Any], known: set[str]) -> bool:
        if name not in values and len(values.keys() - OWN) >= NAMES_A_POINT:
            return False
        if name not in known:
            if len(known) >= NAMES_A_RUN:
                return False
            known.add(name)
            self.new_names.append(name)
        return True


def seconds_between(before: datetime | None, now: datetime) -> float | None:
    return None if before is None else max(0.0, (now - before).total_seconds())
