"""The resources of a launch over time: one reading each interval, kept until a report takes them."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Any

from evenkeel.runner.probes import Probe, probe_for
from evenkeel.runner.processes import descendants
from evenkeel.runner.spec import LaunchSpec

log = logging.getLogger(__name__)

#: Of one report. Where reports are far between, two and two become one, and the interval twice as long.
MOST = 120

Row = list[float | None]


class Sampler:
    """Reads in a thread of its own: a driver may take its time, and the runner has to look after the workers.

    The thread begins after the workers were started, so that they inherit nothing of the driver's.
    """

    def __init__(self, spec: LaunchSpec, step: Callable[[], int | None], probe: Probe | None = None) -> None:
        self._probe, self._step, self._interval_s = probe or probe_for(spec), step, spec.sample_interval_s
        self._rows: list[Row] = []
        self._lock = threading.Lock()
        self._trains = threading.Event()

    def start(self) -> None:
        if self._probe is not None and self._interval_s > 0:
            threading.Thread(target=self._read_forever, name="samples", daemon=True).start()

    def begin(self) -> None:
        """The program trains: what it does before that is launching."""
        self._trains.set()

    def _read_forever(self) -> None:
        self._trains.wait()
        due = time.monotonic()
        while True:
            self.read(time.monotonic())
            due = max(due + self._interval_s, time.monotonic())
            time.sleep(max(0.0, due - time.monotonic()))

    def read(self, now: float) -> None:
        """One reading; what goes wrong costs that one."""
        assert self._probe is not None
        try:
            reading = self._probe.read(now, descendants(os.getpid()), self._step())
        except Exception as error:
            log.info("a sample of resources is missing: %s", error)
            return
        if reading is not None and any(value is not None for value in reading.row()):
            with self._lock:
                self._rows.append([round(time.time(), 2), *reading.row()])

    def take(self) -> dict[str, Any] | None:
        """Of a report: what was read since the last one; None: nothing was."""
        with self._lock:
            rows, self._rows = self._rows, []
        if not rows or self._probe is None:
            return None
        interval_s = self._interval_s
        while len(rows) > MOST:
            rows, interval_s = halved(rows), 2 * interval_s
        return {"interval_s": interval_s, "source": self._probe.source, "samples": rows}


def halved(rows: list[Row]) -> list[Row]:
    """Two and two become their mean, at the time of the first; of an odd number the last stays."""
    return [_merged(rows[n : n + 2]) for n in range(0, len(rows), 2)]


def _merged(rows: list[Row]) -> Row:
    columns = zip(*(row[1:] for row in rows), strict=True)
    known = [[value for value in column if value is not None] for column in columns]
    return [rows[0][0], *(round(sum(values) / len(values), 4) if values else None for values in known)]
