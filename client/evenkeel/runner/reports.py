"""Reports to the portal: every report is a file in `spool/` until the portal has taken it."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import random
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from evenkeel.runner.files import create_private, read_plain
from evenkeel.runner.neighbours import MOST_BYTES, SHORTEST_S, Guest, Neighbours, settle

log = logging.getLogger(__name__)

TIMEOUT_S = 10.0
MAX_REPORT_BYTES = 1 << 20  # the portal takes no more
BACKOFF_S = (1.0, 30.0)
CROWDED = 300  # spooled reports from which on fewer are written
CROWDED_INTERVAL_S = 60.0
STALE, UNTAKABLE = 409, frozenset({400, 413, 415, 422})


def report_url(api_url: str, run_id: str) -> str:
    return f"{api_url.rstrip('/').removesuffix('/api/v1')}/api/v1/runs/{run_id}/reports"


def write_atomically(path: Path, content: Any, *, durable: bool = True) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    fd = create_private(draft)
    with os.fdopen(fd, "w") as file:
        json.dump(content, file)
        file.flush()
        if durable:
            os.fsync(fd)
    draft.replace(path)


class Reporter:
    """`put` writes to the spool; a thread sends the oldest first and deletes what was taken. A report `on_beat`, when
    the others on this node report, too, travels with theirs."""

    def __init__(
        self, spool: Path, url: str, token: str, on_command: Callable[[str], None], neighbours: Neighbours
    ) -> None:
        self._spool, self._url, self._token, self._on_command = spool, url, token, on_command
        self._neighbours, self._on_beat = neighbours, 0  # the number of the newest report that is
        self.limits: dict[str, float | None] = {}  # what the portal said last of total_steps and max_duration_s
        self._wake = threading.Event()
        self._failing = self._closed = False
        self._begun = self._failed_attempt = 0  # numbers of attempts to empty the spool
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        self._seq = max((int(path.stem) for path in self._spooled()), default=0)
        self._asked_at = self.answered_at = time.monotonic()  # answered_at: when what was answered last was sent
        self.interval_s: float | None = None  # what the portal asked for last

    def start(self) -> None:
        threading.Thread(target=self._send_forever, name="reports", daemon=True).start()

    def close(self) -> None:
        """Nothing is sent any more; what is spooled stays."""
        self._closed = True
        self._wake.set()
        self._neighbours.close()

    def send_now(self) -> None:
        """Before `start`: there is no thread yet that could do it, and no other report to wait for."""
        self._on_beat = 0
        self._send_all()

    def put(self, report: dict[str, Any], *, urgent: bool, on_beat: bool = False) -> None:
        self._seq += 1
        if on_beat and not urgent and (self.interval_s or 0.0) >= SHORTEST_S:
            self._on_beat = self._seq
        content = report | {"seq": self._seq, "sent_at": time.time()}
        with contextlib.suppress(OSError):  # a full disk costs reports, never the training
            write_atomically(self._spool / f"{self._seq}.json", content, durable=False)
        if urgent or not self._failing:
            self._wake.set()

    def flush(self, timeout_s: float) -> bool:
        """Whether everything was taken, within the time and by one more attempt at most."""
        begun = self._begun
        self._wake.set()
        give_up_at = time.monotonic() + timeout_s
        while self._spooled() and self._failed_attempt <= begun and time.monotonic() < give_up_at:
            time.sleep(0.02)
        return not self._spooled()

    @property
    def crowded(self) -> bool:
        return len(self._spooled()) > CROWDED

    def _spooled(self) -> list[Path]:
        with contextlib.suppress(OSError):  # closed by the job: that costs reports, too
            paths = [path for path in self._spool.glob("[0-9]*.json") if path.stem.isdecimal()]
            return sorted(paths, key=lambda path: int(path.stem))
        return []

    def _send_forever(self) -> None:
        failures = 0
        while not self._closed:
            self._begun += 1
            failures = 0 if self._send_all() else failures + 1
            self._failed_attempt = self._begun if failures else self._failed_attempt
            self._failing = failures > 0
            low, high = BACKOFF_S
            pause_s = min(high, low * 2 ** min(failures - 1, 10)) if failures else high
            self._wake.wait(pause_s * random.uniform(0.7, 1.0))  # noqa: S311  # nosec B311
            self._wake.clear()

    def _send_all(self) -> bool:
        paths = self._spooled()
        for path in paths:
            try:
                body = read_plain(path, MAX_REPORT_BYTES)
            except OSError:
                continue
            self._asked_at = time.monotonic()
            together = len(paths) == 1 and int(path.stem) == self._on_beat
            if not (self._send_together(body) if together else self._settled(*self._post(body))):
                return False
            with contextlib.suppress(OSError):
                path.unlink()
        return True

    def _send_together(self, body: bytes) -> bool:
        self._on_beat = 0  # should it be sent again, then alone
        try:
            report = json.loads(body)
        except ValueError:  # half written, on a full disk
            return self._settled(*self._post(body))
        if (carried := self._neighbours.carry(report)) is not None:
            return self._settled(*carried)
        guests = self._neighbours.guests(MOST_BYTES - len(body))
        if guests:
            body = json.dumps(report | {"others": [guest.content for guest in guests]}).encode()
        return self._settled(*self._post(body, guests))

    def _post(self, body: bytes, guests: Sequence[Guest] = ()) -> tuple[int, Any]:
        """The status, 0 where the portal does not answer, and what it says."""
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        request = urllib.request.Request(self._url, body, headers, method="POST")  # noqa: S310 (the portal's own)
        status, answer = 0, None
        try:
            with self._opener.open(request, timeout=TIMEOUT_S) as response:
                answer = json.loads(response.read(1 << 20))
                status = 200
        except urllib.error.HTTPError as error:
            status = error.code
        except (OSError, ValueError) as error:
            log.info("the portal does not answer: %s", error)
        settle(guests, status, answer)
        return status, answer

    def _settled(self, status: int, answer: Any) -> bool:
        """True when the report shall not be sent again."""
        if status == 200:
            self._obey(answer)
            self.answered_at = self._asked_at  # the portal counts from when it took it in
            return True
        if status:
            log.warning("the portal answered %s to a report", status)
        if status == STALE:
            self._on_command("checkpoint_and_stop")
        return status == STALE or status in UNTAKABLE

    def _obey(self, answer: Any) -> None:
        if not isinstance(answer, dict):
            return
        interval = answer.get("next_report_s")
        if isinstance(interval, int | float) and interval > 0:
            self.interval_s = min(max(float(interval), 0.2), 3600.0)
        for name in ("total_steps", "max_duration_s"):
            if isinstance(answer.get(name), int | float | None) and name in answer:
                self.limits[name] = answer[name]
        if answer.get("command"):
            self._on_command(str(answer["command"]))
