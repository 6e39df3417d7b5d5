"""Borrowed GPUs taken back, and a job parked at a hard budget: real processes, through the public API."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.live_portal import GENTLE, LivePortal, running_portal

pytestmark = [pytest.mark.whole, pytest.mark.timeout(500)]


@pytest.fixture(scope="module")
def live_portal() -> Iterator[LivePortal]:
    with running_portal() as portal:
        portal.wait_for("its node", lambda: call(portal, "GET", "nodes"))
        for key in ("speech", "paid"):
            call(portal, "POST", "projects", {"key": key, "name": key.title()})
        yield portal


def call(portal: LivePortal, method: str, path: str, body: Any = None) -> Any:
    with portal.api() as api:
        return api.request(method, path, json=body).raise_for_status().json()


def test_an_owner_starts_on_what_was_borrowed_and_the_borrower_comes_back(live_portal: LivePortal) -> None:
    call(live_portal, "PUT", "projects/speech/guarantee", {"gpus": 4, "reclaim_within_s": 40})
    borrower = live_portal.submit(**GENTLE, total_steps=800, gpus={"min": 6, "max": 6})["number"]
    live_portal.wait_for("it to train", lambda: live_portal.job(borrower)["step"] > 20, 120)
    owner = live_portal.submit(**GENTLE, project="speech", total_steps=2000, gpus={"min": 4, "max": 4})["number"]
    started = live_portal.wait_state(owner, "running", "succeeded", timeout_s=120)
    waiting = live_portal.job(borrower)
    assert waiting["run_state"] == "WAITING_FOR_RESOURCE"
    assert waiting["step"] > 20  # from a checkpoint
    events = call(live_portal, "GET", f"jobs/{borrower}/events")["results"]
    (left,) = [event for event in events if event["kind"] == "REALLOCATED"]
    assert (left["detail"]["project"], left["detail"]["reclaimed"]) == ("speech", 4)
    assert started["started_at"] is not None

    def foreseen() -> Any:
        said = call(live_portal, "GET", f"jobs/{borrower}/explanation")["preemption"]
        return said if said and said["back_at"] else None

    why = live_portal.wait_for("a forecast with it in the queue", foreseen, 240)
    assert (why["kind"], why["code"], why["level"]) == ("preempted", "reclaimed", "guarantee of project Speech")
    assert [(taker["number"], taker["within"]) for taker in why["by"]] == [(owner, "the cluster")]
    assert (why["gpus_now"], why["gpus_before"]) == (0, 6)
    call(live_portal, "POST", f"jobs/{owner}/cancel")
    back = live_portal.wait_state(borrower, "succeeded", "failed", timeout_s=180)
    assert (back["state"], back["step"], back["run"]["attempt"]) == ("succeeded", 800, 1)
    overlaps = live_portal.rows(
        "select count(*) from jobs_hold a join jobs_hold b on a.accelerator_id = b.accelerator_id and a.id < b.id "
        "and a.during && b.during"
    )
    assert overlaps == [(0,)]


@pytest.mark.slow
def test_a_running_job_is_parked_at_a_hard_budget_and_goes_on_after_a_raise(live_portal: LivePortal) -> None:
    wish = {"project": "paid", "kind": "gpu_hours", "period": "month", "limit": "0.025", "hard": True}
    made = call(live_portal, "POST", "limits", wish)  # 90 GPU-seconds
    number = live_portal.submit(**GENTLE, project="paid", total_steps=900, gpus={"min": 2, "max": 2})["number"]
    parked = lambda: live_portal.job(number)["run_state"] == "WAITING_FOR_RESOURCE"  # noqa: E731
    live_portal.wait_for("it to be parked", parked, 180)
    job = live_portal.job(number)
    assert 0 < job["step"] < 900
    (limit,) = call(live_portal, "GET", "projects/paid/limits")["results"]
    assert limit["reached"]
    assert float(limit["used"]) <= 0.025  # not crossed
    events = call(live_portal, "GET", "events")["results"]
    told = [event["detail"]["percent"] for event in events if event["kind"] == "budget"]
    assert sorted(told) == [80, 100]
    live_portal.wait_for("it to say so", lambda: live_portal.job(number)["reason"]["code"] == "quota_period")
    call(live_portal, "PUT", f"limits/{made['id']}", {"limit": "10", "hard": True})
    done = live_portal.wait_state(number, "succeeded", "failed", timeout_s=180)
    assert (done["state"], done["step"], done["run"]["attempt"]) == ("succeeded", 900, 1)
