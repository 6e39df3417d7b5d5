"""From submission to the ledger through the public API, with real databases, workers and training."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import psutil
import pytest

from tests.live_portal import GENTLE, LivePortal, running_portal

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def live_portal() -> Iterator[LivePortal]:
    """A portal of their own: what browser tests leave queued or configured does not get in the way."""
    with running_portal() as portal:
        yield portal


def test_a_job_trains_and_is_paid_for(live_portal: LivePortal) -> None:
    number = live_portal.submit(model_type="digits_mlp", total_steps=60, gpus={"min": 1, "max": 1})["number"]
    job = live_portal.wait_state(number, "succeeded", "failed", timeout_s=120)
    assert job["state"] == "succeeded", job
    assert job["step"] == 60
    assert job["emulated"] is True
    assert job["times"]["running_s"] > 0
    live_portal.wait_for("the ledger", lambda: Decimal(live_portal.job(number)["cost"]["so_far"]) > 0)
    with live_portal.api() as api:
        losses = api.get(f"jobs/{number}/metrics").json()["series"]["loss"]
        log = api.get(f"jobs/{number}/logs", headers={"Accept": "text/plain"}).text
        kinds = [event["kind"] for event in api.get(f"jobs/{number}/events").json()["results"]]
        timeline = api.get(f"jobs/{number}/timeline").json()
    assert losses[-1][2] < losses[0][2]
    assert "loss" in log
    assert kinds[::-1][:4] == ["submitted", "ACCEPTED", "ASSIGNED", "GPUS_FREE"]
    assert list(dict.fromkeys(s["coarse"] for s in timeline["states"])) == ["queued", "starting", "running"]
    assert timeline["allocations"][0]["count"] == 1


def test_an_arrival_rescales_a_running_job_which_loses_no_step(live_portal: LivePortal) -> None:
    first = live_portal.submit(**GENTLE, total_steps=400, gpus={"min": 1, "max": 2})["number"]
    live_portal.wait_for("it to train unprotected", lambda: live_portal.job(first)["run_state"] == "RUNNING", 120)
    second = live_portal.submit(**GENTLE, total_steps=400, gpus={"min": 5, "max": 5})["number"]
    live_portal.wait_state(second, "running", timeout_s=120)
    live_portal.wait_for("the first to be rescaled", lambda: live_portal.job(first)["resizes"] >= 1)
    with live_portal.api() as api:
        api.post(f"jobs/{second}/cancel").raise_for_status()
    job = live_portal.wait_state(first, "succeeded", "failed", timeout_s=180)
    assert (job["state"], job["step"], job["run"]["attempt"]) == ("succeeded", 400, 1)


def test_a_failing_command_is_retried_and_then_says_why(live_portal: LivePortal) -> None:
    number = live_portal.submit(
        model_type=None,
        command="echo about to fail; exit 3",
        total_steps=5,
        retry={"limit": 1, "backoff_s": 0.1, "on": ["user_error"]},
    )["number"]
    job = live_portal.wait_state(number, "failed", timeout_s=120)
    assert job["run"]["attempt"] == 2
    assert (job["exit"]["reason"], job["exit"]["exit_code"]) == ("user_error", 3)
    assert "exit code 3" in job["reason"]["text"]
    with live_portal.api() as api:
        assert "about to fail" in api.get(f"jobs/{number}/logs").json()["text"]


def test_a_cancelled_job_leaves_no_process(live_portal: LivePortal) -> None:
    job = live_portal.submit(model_type=None, command="sleep 600", total_steps=5)
    live_portal.wait_state(job["number"], "running", timeout_s=120)
    with live_portal.api() as api:
        api.post(f"jobs/{job['number']}/cancel").raise_for_status()
    live_portal.wait_for("the processes to go", lambda: not _processes_of(job["id"]))
    query = (
        "SELECT count(*) FROM jobs_hold h JOIN jobs_run r ON r.id = h.run_id "
        f"WHERE r.job_id = '{job['id']}' AND upper_inf(during)"
    )
    live_portal.wait_for("the holds to end", lambda: live_portal.rows(query) == [(0,)])


def _processes_of(job_id: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if job_id in process.cwd():
                found.append(process)
    return found


@pytest.mark.slow
def test_training_outlives_the_control_plane() -> None:
    with running_portal() as portal:
        job = portal.submit(**GENTLE, total_steps=250, gpus={"min": 1, "max": 1})
        portal.wait_state(job["number"], "running", timeout_s=120)
        before = {p.pid for p in _processes_of(job["id"])}
        portal.interrupt()
        during = {p.pid for p in _processes_of(job["id"])}
        assert before <= during
        portal.start()
        again = portal.job(job["number"])
        assert again["run"] == {"id": job["run"]["id"], "attempt": 1, "epoch": 1}
        done = portal.wait_state(job["number"], "succeeded", "failed", timeout_s=240)
        assert (done["state"], done["run"]["attempt"], done["resizes"]) == ("succeeded", 1, 0)


def _measured_beside(portal: LivePortal, number: int) -> Any:
    sharing = portal.job(number)["sharing"]
    return sharing if sharing and any(one["slowdown"] for one in sharing["neighbours"]) else None


def _its_use_was_sampled(portal: LivePortal, number: int) -> None:
    """By processes: of half a device its time, and memory against what the device was declared to have."""
    with portal.api() as api:
        found = api.get(f"jobs/{number}/resources").raise_for_status().json()
    busy = [part for _, part in found["series"]["gpu"]]
    memory = [part for _, part in found["series"]["gpu_memory"]]
    assert len(busy) >= 3
    assert all(0 <= part <= 0.5 for part in busy)
    assert max(busy) > 0.1
    assert all(0 < part < 1 for part in memory)
    assert {part for _, part in found["series"]["pcie"]} == {None}
    (launch,) = found["launches"]
    assert (launch["source"], launch["emulated"], launch["share_percent"]) == ("processes", True, 50)
    assert [(one["type"], one["share_percent"]) for one in found["profiles"]] == [("titan_xp", 50)]


@pytest.mark.whole
def test_two_halves_train_on_one_gpu_at_half_the_pace_and_half_the_cost(live_portal: LivePortal) -> None:
    both = [live_portal.submit(**GENTLE, total_steps=60, gpus=0.5)["number"] for _ in range(2)]

    def together() -> Any:
        jobs = [live_portal.job(number) for number in both]
        return jobs if all(job["sharing"] and job["step"] and job["sharing"]["neighbours"] for job in jobs) else None

    first, second = live_portal.wait_for("both to train", together, 120)
    assert first["allocation"]["gpus"] == second["allocation"]["gpus"]
    assert [one["number"] for one in first["sharing"]["neighbours"]] == [second["number"]]
    assert first["throughput"]["predicted_steps_per_s"] == pytest.approx(0.5 * 0.4 * 20)
    beside = live_portal.wait_for("what they make beside each other", lambda: _measured_beside(live_portal, both[0]))
    assert beside["expected_source"] == "pair"
    assert beside["expected_slowdown"] == beside["neighbours"][0]["slowdown"] >= 1.9, "each is paced to its half"
    for number in both:
        job = live_portal.wait_state(number, "succeeded", "failed", timeout_s=180)
        assert (job["state"], job["step"], job["run"]["attempt"]) == ("succeeded", 60, 1)
    for number in both:
        _its_use_was_sampled(live_portal, number)
    rows = live_portal.rows(
        "select e.quantity, h.accelerator_id from accounts_ledgerentry e join jobs_hold h on h.id = e.hold_id "
        f"join jobs_run r on r.id = h.run_id join jobs_job j on j.id = r.job_id where j.number in {tuple(both)}"
    )
    assert {hundredths for hundredths, _ in rows} == {50}
    assert len({gpu for _, gpu in rows}) == 1
    with live_portal.api() as api:
        log = api.get(f"jobs/{both[0]}/logs", headers={"Accept": "text/plain"}).text
    assert "Shares its GPU, emulated: paced to 50 %" in log
