"""How soon an event is in 500 browsers: sockets on one portal, each following the cluster and a project.

python -m benchmarks.bench_sockets [--sockets 500] [--events 60]

Every event is a job's new label, sent over REST while jobs report ten steps a second beside it: these sleep for a step,
as GPUs elsewhere leave this machine's cores to the portal. Measured until a diff with it is at
each socket: from the request (the answer's time included) and from the moment that the portal wrote the event, over all
events and sockets, beside the same with one socket. Then Redis is killed and a job renamed while it is away: how long
after Redis answers again until every socket knows. Bounds: 500 ms at the 95th percentile from the event, 5 s after
Redis; exit code 1 where one is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import httpx
import psutil
from websockets.asyncio.client import ClientConnection, connect

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.bench_api import percentile  # noqa: E402
from tests.live_portal import LivePortal, running_portal  # noqa: E402
from tests.supervisor.running import unlimited  # noqa: E402

EVENT_MS, AFTER_REDIS_S = 500.0, 5.0
PROJECT = "project:default"
STEPS = """
import time, evenkeel
with evenkeel.training() as run:
    for step in run.steps():
        time.sleep(0.1)
        run.report(loss=1 / (step + 1))
"""


@dataclass
class Browser:
    """One socket, and when it first saw each word that is looked for."""

    socket: ClientConnection
    seen_at: dict[str, float] = field(default_factory=dict)
    known: dict[str, int] = field(default_factory=dict)  # stream -> number


class Browsers:
    def __init__(self, portal: LivePortal, cookie: str) -> None:
        self.portal, self.cookie = portal, cookie
        self.all: list[Browser] = []
        self.wanted = ""
        self.tasks: list[asyncio.Task[None]] = []
        limits = httpx.Limits(max_connections=20)
        self.http = httpx.AsyncClient(
            base_url=portal.base_url, headers={"Cookie": cookie}, timeout=30, trust_env=False, limits=limits
        )

    async def open(self, count: int) -> None:
        url = f"ws://127.0.0.1:{self.portal.port}/ws/v1/live"
        headers = {"Cookie": self.cookie}
        at_once = asyncio.Semaphore(10)

        async def one() -> None:
            async with at_once:
                socket = await connect(
                    url, additional_headers=headers, origin=self.portal.base_url,  # type: ignore[arg-type]
                    max_size=None, ping_interval=None, open_timeout=30, proxy=None,
                )  # fmt: skip
                await socket.send(json.dumps({"subscribe": ["cluster", PROJECT]}))
            browser = Browser(socket)
            self.all.append(browser)
            self.tasks.append(asyncio.create_task(self._follow(browser)))

        await asyncio.gather(*(one() for _ in range(count)))
        while not all(PROJECT in one.known for one in self.all):
            await asyncio.sleep(0.1)

    async def _follow(self, browser: Browser) -> None:
        """As the front end does: a gap, or a greater number than it knows, makes it fetch."""
        async for text in browser.socket:
            at = time.time()
            if self.wanted and self.wanted in text:
                browser.seen_at.setdefault(self.wanted, at)
            message = json.loads(text)
            numbers = message.get("numbers") or {message.get("stream"): message.get("seq")}
            for stream, seq in numbers.items():
                known = browser.known.get(stream, 0)
                lost = seq is not None and known and seq > known + (message["type"] == "diff")
                if message["type"] == "subscribed" or lost:
                    self.tasks.append(asyncio.create_task(self._fetch(browser, stream)))
                elif seq is not None and known:
                    browser.known[stream] = max(known, seq)

    async def _fetch(self, browser: Browser, stream: str) -> None:
        answer = await self.http.get(f"/api/v1/live/{stream}")
        browser.known[stream] = max(browser.known.get(stream, 0), answer.raise_for_status().json()["seq"])
        if self.wanted and self.wanted in answer.text:
            browser.seen_at.setdefault(self.wanted, time.time())

    async def wait(self, word: str, timeout_s: float) -> list[float]:
        """When each of them saw it; those that have not by then are missing."""
        give_up_at = time.time() + timeout_s
        while time.time() < give_up_at and not all(word in one.seen_at for one in self.all):
            await asyncio.sleep(0.01)
        return [one.seen_at[word] for one in self.all if word in one.seen_at]

    async def close(self) -> None:
        for one in self.all:
            await one.socket.close()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        self.all, self.tasks = [], []


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sockets", type=int, default=500)
    parser.add_argument("--events", type=int, default=60)
    options = parser.parse_args()
    with running_portal(**unlimited()) as portal:
        return asyncio.run(measure(portal, options.sockets, options.events))


async def measure(portal: LivePortal, sockets: int, events: int) -> int:
    # Two that report to the end of it, and one whose labels change.
    job = {"model_type": None, "command": f"{sys.executable} -c '{STEPS}'", "total_steps": 100_000}
    for _ in range(2):
        portal.submit(**job, gpus={"min": 1, "max": 1})
    number = portal.submit(**job, gpus={"min": 1, "max": 1})["number"]
    await asyncio.to_thread(portal.wait_state, number, "running")
    browsers, missed = Browsers(portal, sign_in(portal)), []
    heads = ("sockets", "events", "opened s", "request p50", "p95 ms", "event p50", "p95 ms", "web CPU")
    print("".join(f"{head:>12}" for head in heads))
    for count in (sockets,) if os.environ.get("DBG") else (1, sockets):
        began = time.monotonic()
        await browsers.open(count)
        opened_s = time.monotonic() - began
        await asyncio.sleep(12)  # every socket has been asked once whether it still may
        requests, since, share = await probe(portal, browsers, number, events, f"n{count}")
        line = (percentile(requests, 50), percentile(requests, 95), percentile(since, 50), percentile(since, 95))
        print(f"{count:12}{events:12}{opened_s:12.1f}" + "".join(f"{one:12.0f}" for one in line) + f"{share:12.0%}")
        if len(since) < count * events:
            missed.append(f"{count * events - len(since)} events of {count * events} came late or not at all")
        if line[3] > EVENT_MS:
            missed.append(f"{count} sockets: {line[3]:.0f} of {EVENT_MS:.0f} ms")
        if count == sockets:
            missed += await restart(portal, browsers, number)
        await browsers.close()
    for what in missed:
        print(f"MISSED: {what}")
    return 1 if missed else 0


def sign_in(portal: LivePortal) -> str:
    with httpx.Client(base_url=portal.base_url, trust_env=False, timeout=15) as client:
        client.get("/api/v1/session").raise_for_status()
        headers = {"X-CSRFToken": client.cookies["csrftoken"], "Referer": portal.base_url}
        body = {"email": portal.admin_email, "password": portal.admin_password}
        client.post("/api/v1/session", json=body, headers=headers).raise_for_status()
        return "; ".join(f"{name}={value}" for name, value in client.cookies.items())


async def probe(
    portal: LivePortal, browsers: Browsers, number: int, events: int, name: str
) -> tuple[list[float], list[float], float]:
    """Milliseconds from request and from event to each socket, and the web process's share of a core."""
    web = psutil.Process(portal.pid("web"))
    requests, since = [], []
    began, before_s = time.monotonic(), _cpu_s(web)
    for i in range(events):
        await asyncio.sleep(random.uniform(0.6, 1.4))
        word = browsers.wanted = f"probe-{name}-{i}-end"
        sent_at = time.time()
        await asyncio.to_thread(label, portal, number, word)
        seen = await browsers.wait(word, 10)
        wrote_at = await asyncio.to_thread(written_at, portal, number, word)
        requests += [(at - sent_at) * 1000 for at in seen]
        since += [(at - wrote_at) * 1000 for at in seen]
    return requests, since, (_cpu_s(web) - before_s) / (time.monotonic() - began)


def label(portal: LivePortal, number: int, word: str) -> None:
    with portal.api() as api:
        api.patch(f"jobs/{number}", json={"labels": {"probe": word}}).raise_for_status()


def written_at(portal: LivePortal, number: int, word: str) -> float:
    with portal.api() as api:
        newest = api.get(f"jobs/{number}/events").raise_for_status().json()["results"]
    return next(datetime.fromisoformat(one["at"]).timestamp() for one in newest if one["kind"] == "changed")


async def restart(portal: LivePortal, browsers: Browsers, number: int) -> list[str]:
    """Kill Redis; the change is made while it is away."""
    word = browsers.wanted = "probe-away-end"
    os.kill(portal.pid("valkey"), signal.SIGKILL)
    await asyncio.to_thread(until, lambda: label(portal, number, word))
    await asyncio.to_thread(until, lambda: ready(portal))
    back_at = time.time()
    seen = await browsers.wait(word, 30)
    late_s = max(seen) - back_at if len(seen) == len(browsers.all) else float("inf")
    told = f"{len(seen)} of {len(browsers.all)} sockets know what changed meanwhile"
    print(f"Redis killed: {told} {late_s:.1f} s after it was back")
    return [f"stale for {late_s:.1f} of {AFTER_REDIS_S:.0f} s after Redis was back"] if late_s > AFTER_REDIS_S else []


def ready(portal: LivePortal) -> None:
    if not portal.ready():
        raise httpx.ConnectError("not ready")


def until(act: Callable[[], None], timeout_s: float = 60) -> None:
    give_up_at = time.monotonic() + timeout_s
    while True:
        try:
            return act()
        except httpx.HTTPError:
            if time.monotonic() > give_up_at:
                raise
            time.sleep(0.1)


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


if __name__ == "__main__":
    sys.exit(main())
