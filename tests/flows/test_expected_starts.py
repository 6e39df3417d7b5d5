"""A portal as users have it says when a waiting job starts, and then it starts."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from tests.live_portal import GENTLE, running_portal

pytestmark = pytest.mark.timeout(400)


@pytest.mark.slow
def test_a_waiting_job_is_told_its_start_and_starts() -> None:
    with running_portal() as portal, portal.api() as api:
        assert portal.pid("forecasts") != portal.pid("worker")
        api.put("policy", json={"name": "fifo_gang", "parameters": {}}).raise_for_status()
        first = portal.submit(**GENTLE, total_steps=500, gpus={"min": 6, "max": 6})["number"]
        portal.wait_state(first, "running", timeout_s=120)
        second = portal.submit(**GENTLE, total_steps=50, gpus={"min": 6, "max": 6})["number"]

        def said() -> Any:
            told = portal.job(second)["expected_start"]
            return told if told and told["p50_at"] else None

        told = portal.wait_for("an expected start", said)
        assert portal.job(first)["state"] == "running"
        assert told["basis"] == "simulated"
        assert told["p10_at"] <= told["p50_at"] <= told["p90_at"]
        assert datetime.fromisoformat(told["p90_at"]) > datetime.fromisoformat(told["as_of"])
        queued = api.get("jobs", params={"state": "queued"}).json()["results"]
        assert [job["number"] for job in queued if job["expected_start"]["p50_at"]] == [second]

        portal.wait_state(first, "succeeded", timeout_s=180)
        job = portal.wait_state(second, "running", "succeeded", timeout_s=120)
        assert job["expected_start"] is None
        assert job["started_at"] > portal.job(first)["finished_at"]
        kept = portal.wait_for(
            "what came true", lambda: portal.rows("SELECT started FROM jobs_startsample WHERE waited_s IS NOT NULL")
        )
        assert set(kept) == {(True,)}
