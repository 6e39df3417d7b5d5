"""The front end's own store on a real portal: stale state and events are the same as a fresh fetch."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from tests.live_portal import LivePortal

FRONTEND = Path(__file__).resolve().parents[2] / "frontend"
STREAMS = ["cluster", "project:default"]
_OPEN = """(streams) => {
  const open = () => new WebSocket(`ws://${location.host}/ws/v1/live`);
  const fetchStream = async (name) => {
    window.fetched += 1;
    return (await fetch(`/api/v1/live/${encodeURIComponent(name)}`)).json();
  };
  window.fetched = 0;
  window.store = new Live.LiveStore({ open, fetchStream, onRefused: () => undefined, now: Date.now });
  window.store.watch(streams);
}"""
_LIVE = """async () => {
  for (let i = 0; i < 300 && window.store.connection.phase !== "live"; i += 1)
    await new Promise((done) => setTimeout(done, 100));
  return window.store.connection.phase === "live";
}"""
#: What the store has and what the portal answers, once both are of one number.
_BOTH = """async (name) => {
  for (let i = 0; i < 200; i += 1) {
    const fresh = await (await fetch(`/api/v1/live/${encodeURIComponent(name)}`)).json();
    const kept = window.store.streams.get(name);
    if (!kept.stale && kept.seq === fresh.seq) return { seq: kept.seq, kept: kept.state, fresh: fresh.state };
    await new Promise((done) => setTimeout(done, 100));
  }
  return null;
}"""

pytestmark = [pytest.mark.whole, pytest.mark.browser, pytest.mark.timeout(300)]


@pytest.fixture
def store(page: Page, tmp_path: Path) -> Page:
    """A page with nothing but the store, which follows both streams."""
    bundle = tmp_path / "live.js"
    words = ["npx", "--no-install", "esbuild", "src/lib/live/live.ts", "--bundle", "--format=iife"]
    subprocess.run(
        [*words, "--global-name=Live", f"--outfile={bundle}"],
        cwd=FRONTEND,
        timeout=60,
        check=True,
        stdin=subprocess.DEVNULL,
    )
    page.goto("/healthz")
    page.evaluate(bundle.read_text() + ";window.Live = Live")
    page.evaluate(_OPEN, STREAMS)
    assert page.evaluate(_LIVE), "the socket does not come to life"
    return page


def both(page: Page, stream: str) -> dict[str, Any]:
    found = page.evaluate(_BOTH, stream)
    assert found is not None, f"{stream} does not catch up"
    return dict(found)


def test_a_stale_state_and_its_events_equal_a_fresh_fetch(store: Page, live_portal: LivePortal) -> None:
    before = {stream: both(store, stream)["seq"] for stream in STREAMS}
    jobs = [live_portal.submit(total_steps=60, gpus={"min": 1, "max": 3})["number"] for _ in range(3)]
    with live_portal.api() as api:
        api.post(f"jobs/{jobs[2]}/cancel").raise_for_status()
    for number in jobs[:2]:
        live_portal.wait_state(number, "succeeded")
    for stream in STREAMS:
        found = both(store, stream)
        assert found["kept"] == found["fresh"]
        assert found["seq"] >= before[stream] + 3
    assert store.evaluate("window.fetched") == len(STREAMS)  # what it has came from events alone


def test_a_restart_of_redis_leaves_no_stale_view(store: Page, live_portal: LivePortal) -> None:
    os.kill(live_portal.pid("valkey"), signal.SIGKILL)
    time.sleep(0.2)
    live_portal.wait_for("Redis to be back", live_portal.ready)
    number = live_portal.submit(total_steps=20)["number"]
    live_portal.wait_state(number, "succeeded")
    for stream in STREAMS:
        found = both(store, stream)
        assert found["kept"] == found["fresh"]
        assert str(number) in found["fresh"]["jobs"] or stream == "cluster"
