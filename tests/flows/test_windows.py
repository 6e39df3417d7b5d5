"""A maintenance window over the whole portal: it keeps a job waiting, and the job starts once it is cancelled."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.live_portal import GENTLE, running_portal

pytestmark = pytest.mark.whole


def test_a_window_keeps_a_job_waiting_until_it_is_taken_back() -> None:
    with running_portal(EVENKEEL_VIRTUAL_ACCELERATORS="titan_xp:2") as portal:
        now = datetime.now(UTC)
        wish = {
            "kind": "maintenance",
            "start_at": (now + timedelta(minutes=10)).isoformat(),
            "end_at": (now + timedelta(minutes=20)).isoformat(),
            "reason": "new switches",
            "all_nodes": True,
        }
        with portal.api() as api:
            made = api.post("windows", json=wish)
            assert made.status_code == 201, made.text
            long = portal.submit(**GENTLE, total_steps=10**6, gpus={"min": 1, "max": 1})["number"]
            short = portal.submit(total_steps=60, gpus={"min": 1, "max": 1})["number"]
            assert portal.wait_state(short, "succeeded")

            def explanation() -> dict[str, str] | None:
                found = api.get(f"jobs/{long}/explanation").json()
                return found if found["code"] == "maintenance" else None

            found = portal.wait_for("the reason", explanation)
            assert found["slurm"] == "ReqNodeNotAvail"
            assert "new switches" in found["text"]
            assert portal.job(long)["state"] == "queued"
            assert api.delete(f"windows/{made.json()['id']}").status_code == 204
            portal.wait_state(long, "running")
            assert [row["state"] for row in api.get("windows").json()["results"]] == ["removed"]
            api.post(f"jobs/{long}/cancel")
