"""The example of a plain program in a whole portal: it is asked to end, and what it saved is kept and found again."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.live_portal import LivePortal, running_portal

pytestmark = [pytest.mark.whole, pytest.mark.timeout(400)]
FILE = {"model_type": None, "command": "python train.py; true", "total_steps": 1, "gpus": 1}
EXAMPLE = Path(__file__).parents[2] / "examples" / "plain"


@pytest.fixture(scope="module")
def live_portal() -> Iterator[LivePortal]:
    with running_portal() as portal:
        yield portal


@pytest.fixture(scope="module")
def code() -> Iterator[str]:
    place = Path(tempfile.mkdtemp(prefix="evenkeel-plain-"))
    place.chmod(0o755)
    shutil.copy(EXAMPLE / "train.py", place)
    yield str(place)
    shutil.rmtree(place)


def begin(portal: LivePortal, code: str, **keys: Any) -> int:
    """A job that trains and has made an epoch."""
    number = int(portal.submit(**(FILE | {"code": {"path": code}} | keys))["number"])
    until_it_says(portal, number, "epoch 2")
    return number


def until_it_says(portal: LivePortal, number: int, words: str) -> None:
    with portal.api() as api:
        path = f"jobs/{number}/logs"
        portal.wait_for(words, lambda: f"{words}\n" in api.get(path, headers={"Accept": "text/plain"}).text)


def saved(portal: LivePortal, api: httpx.Client, number: int) -> int:
    """The epoch in the file that can be downloaded."""
    path = f"jobs/{number}/artifacts"
    listed = portal.wait_for("the file", lambda: (a := api.get(path).json()) and not a["collecting"] and a)
    [row] = listed["results"]
    assert row["path"] == "last.json"
    return int(json.loads(api.get(f"{path}/{row['id']}").text)["epoch"])


def test_a_cancelled_job_saves_what_can_be_downloaded(live_portal: LivePortal, code: str) -> None:
    number = begin(live_portal, code)
    with live_portal.api() as api:
        assert api.post(f"jobs/{number}/cancel").json()["state"] == "cancelled"
        assert saved(live_portal, api, number) >= 2
        assert live_portal.job(number)["ending"] is False


def test_so_does_one_whose_time_is_over(live_portal: LivePortal, code: str) -> None:
    number = begin(live_portal, code, max_duration=3)
    job = live_portal.wait_state(number, "failed", timeout_s=120)
    assert "EVENKEEL_ARTIFACT_DIR can be downloaded" in job["reason"]["text"]
    with live_portal.api() as api:
        assert saved(live_portal, api, number) >= 2


def test_so_do_jobs_that_are_cancelled_together(live_portal: LivePortal, code: str) -> None:
    numbers = [begin(live_portal, code) for _ in range(2)]
    with live_portal.api() as api:
        done = api.post("jobs/bulk", json={"action": "cancel", "ids": [str(number) for number in numbers]}).json()
        assert done["succeeded"] == 2
        assert all(saved(live_portal, api, number) >= 2 for number in numbers)


def test_so_do_the_jobs_of_an_array(live_portal: LivePortal, code: str) -> None:
    body = FILE | {"project": "default", "code": {"path": code}, "array": "0-1"}
    with live_portal.api() as api:
        array = api.post("jobs", json=body).raise_for_status().json()["array"]["number"]
        numbers = [job["number"] for job in api.get("jobs", params={"array": array}).json()["results"]]
        assert len(numbers) == 2
        for number in numbers:
            until_it_says(live_portal, number, "epoch 2")
        api.post(f"arrays/{array}/cancel", json={}).raise_for_status()
        assert all(saved(live_portal, api, number) >= 2 for number in numbers)


def test_so_does_one_that_makes_way_for_another_and_it_goes_on(live_portal: LivePortal, code: str) -> None:
    with live_portal.api() as api:
        api.post("projects", json={"key": "speech", "name": "Speech"}).raise_for_status()
        api.put("projects/speech/guarantee", json={"gpus": 6, "reclaim_within_s": 40}).raise_for_status()
        borrower = begin(live_portal, code, gpus=6, restartable=True)
        owner = live_portal.submit(project="speech", model_type=None, command="sleep 600", total_steps=1, gpus=6)
        live_portal.wait_state(int(owner["number"]), "running", timeout_s=120)
        until_it_says(live_portal, borrower, "epoch 2")
        api.post(f"jobs/{owner['number']}/cancel").raise_for_status()
        live_portal.wait_state(borrower, "running", timeout_s=120)
        assert live_portal.job(borrower)["run"]["attempt"] == 1
        api.post(f"jobs/{borrower}/cancel").raise_for_status()
        assert saved(live_portal, api, borrower) >= 2
        api.delete("projects/speech/guarantee").raise_for_status()  # the tests share the portal
        log = api.get(f"jobs/{borrower}/logs", headers={"Accept": "text/plain"}).text
    assert log.count("epoch 1\n") == 1


def test_so_do_those_on_a_node_at_the_deadline_of_its_drain(live_portal: LivePortal, code: str) -> None:
    moves, ends = begin(live_portal, code, restartable=True), begin(live_portal, code, restartable=False)
    with live_portal.api() as api:
        [node] = api.get("nodes").raise_for_status().json()
        drained = api.post(f"nodes/{node['name']}/drain", json={"within_s": 5, "reason": "fans"}).raise_for_status()
        outcomes = {row["job"]["number"]: row["outcome"] for row in drained.json()["drain"]["jobs"]}
        assert outcomes == {moves: "moves", ends: "lost"}
        stopped = live_portal.wait_state(ends, "cancelled", timeout_s=120)
        assert stopped["reason"]["code"] == "node_drained_stopped"
        live_portal.wait_state(moves, "queued", timeout_s=120)
        assert saved(live_portal, api, ends) >= 2
        api.post(f"jobs/{moves}/cancel").raise_for_status()  # files are listed at the end of a job
        assert saved(live_portal, api, moves) >= 2
        api.post(f"nodes/{node['name']}/resume").raise_for_status()  # the tests share the portal


def test_held_by_its_owner_it_goes_on_from_its_file(live_portal: LivePortal, code: str) -> None:
    number = begin(live_portal, code)
    with live_portal.api() as api:
        live_portal.wait_for("word of its SDK", lambda: live_portal.job(number)["restartable"] is False)
        assert "set restartable to true" in api.post(f"jobs/{number}/hold").text
        api.patch(f"jobs/{number}", json={"restartable": True}).raise_for_status()
        api.post(f"jobs/{number}/hold").raise_for_status()
        live_portal.wait_state(number, "queued")
        api.post(f"jobs/{number}/release").raise_for_status()
        live_portal.wait_state(number, "running")
        api.post(f"jobs/{number}/cancel").raise_for_status()
        log = api.get(f"jobs/{number}/logs", headers={"Accept": "text/plain"}).text
    assert log.count("epoch 1\n") == 1


def test_a_retry_finds_what_the_attempt_before_left(live_portal: LivePortal, code: str) -> None:
    line = 'test -e "$EVENKEEL_ARTIFACT_DIR/tried" || { touch "$EVENKEEL_ARTIFACT_DIR/tried"; exit 1; }'
    retry = {"limit": 1, "backoff_s": 1, "on": ["user_error"]}
    number = int(live_portal.submit(model_type=None, command=line, total_steps=1, gpus=1, retry=retry)["number"])
    job = live_portal.wait_state(number, "succeeded", "failed", timeout_s=120)
    assert (job["state"], job["run"]["attempt"]) == ("succeeded", 2)
