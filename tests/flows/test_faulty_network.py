"""Submissions through a network that drops requests and answers, repeats them and comes late: one job for each key."""

from __future__ import annotations

import http.client
import random
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from urllib.parse import urlsplit

import evenkeel.client
import httpx
import pytest
from evenkeel.client import Client

from tests.live_portal import LivePortal, running_portal
from tests.supervisor.running import unlimited

SUBMISSIONS, THREADS = 1_000, 4
#: What happens to how many of a hundred requests; all others pass.
FAULTS = {"request lost": 10, "answer lost": 10, "sent twice": 10, "late": 5}
LATE_S, TIMEOUT_S = 3.0, 2.0


class Faulty(ThreadingHTTPServer):
    """A proxy in front of the portal. Which request meets with what follows from the seed and their order."""

    daemon_threads = True

    def __init__(self, target: str) -> None:
        super().__init__(("127.0.0.1", 0), Through)
        self.target = urlsplit(target).netloc
        self.happened: Counter[str] = Counter()
        self._random, self._lock = random.Random(7), Lock()

    def fault(self) -> str:
        with self._lock:
            kinds = [*FAULTS, "none"]
            weights = [*FAULTS.values(), 100 - sum(FAULTS.values())]
            [kind] = self._random.choices(kinds, weights)
            self.happened[kind] += 1
        return kind


class Through(BaseHTTPRequestHandler):
    server: Faulty
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = self.server.fault()
        if fault == "request lost":
            self.close_connection = True
            return
        if fault == "late":
            time.sleep(LATE_S)
        status, headers, answer = self._forward(body)
        if fault == "sent twice":
            status, headers, answer = self._forward(body)
        if fault == "answer lost":
            self.close_connection = True
            return
        self.send_response(status)
        for name in ("Content-Type", "Retry-After", "Location"):
            if name in headers:
                self.send_header(name, headers[name])
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def _forward(self, body: bytes) -> tuple[int, http.client.HTTPMessage, bytes]:
        kept = {name: value for name, value in self.headers.items() if name.lower() not in ("host", "connection")}
        with closing(http.client.HTTPConnection(self.server.target, timeout=60)) as onward:
            onward.request("POST", self.path, body, kept)
            answer = onward.getresponse()
            return answer.status, answer.headers, answer.read()

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except (ConnectionError, BrokenPipeError):  # who asked has given up on a late answer
            self.close_connection = True


@contextmanager
def faulty(portal: LivePortal) -> Iterator[Faulty]:
    with Faulty(portal.base_url) as proxy:
        Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        yield proxy
        proxy.shutdown()


@pytest.mark.slow
@pytest.mark.timeout(1_200)
def test_a_thousand_submissions_make_exactly_a_thousand_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evenkeel.client, "LONGEST_PAUSE_S", 0.2)
    body = {"project": "default", "command": "true", "total_steps": 1, "gpus": {"min": 7}}
    with running_portal(**unlimited()) as portal, faulty(portal) as proxy:
        address = f"http://127.0.0.1:{proxy.server_address[1]}"

        def submit(i: int) -> int:
            with Client(address, portal.token, timeout=httpx.Timeout(TIMEOUT_S)) as client:
                for _ in range(5):  # as somebody who is told to submit again with the same key
                    try:
                        return client.submit(body | {"labels": {"n": str(i)}}, idempotency_key=f"run-{i}")["number"]
                    except evenkeel.client.ConnectionFailed:
                        continue
            raise AssertionError(f"submission {i} never got through")

        with ThreadPoolExecutor(THREADS) as pool:
            numbers = list(pool.map(submit, range(SUBMISSIONS)))
        with Client(portal.base_url, portal.token) as client:
            stored = {job["number"]: job["labels"]["n"] for job in client.jobs(limit="200")}
    assert len(set(numbers)) == SUBMISSIONS
    assert stored == {number: str(i) for i, number in enumerate(numbers)}
    assert all(proxy.happened[kind] > SUBMISSIONS * often / 200 for kind, often in FAULTS.items()), proxy.happened
