"""Jobs that train on data of a store and of a folder, over the API of a whole portal."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.client.s3 import S3, s3_server
from tests.live_portal import LivePortal, running_portal

pytestmark = [pytest.mark.whole, pytest.mark.timeout(400)]
#: Fits a line to the numbers that it finds, and says what it found and whence.
PROGRAM = """
import json, os, evenkeel
with evenkeel.training() as run:
    points = json.loads((run.data("points") / "train.json").read_text())
    labels = open(os.path.join(os.environ["EVENKEEL_DATA_DIR"], "labels")).read()
    assert os.environ["EVENKEEL_DATA_POINTS"] == os.path.join(os.environ["EVENKEEL_DATA_DIR"], "points")
    state = run.load() or {"slope": 0.0}
    for step in run.steps():
        x, y = points[step % len(points)]
        error = state["slope"] * x - y
        state["slope"] -= error * x
        run.report(loss=error * error)
        run.save(state)
    print("slope", round(state["slope"], 2), "of", labels, flush=True)
"""


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    with s3_server() as made:
        yield made


@pytest.fixture(scope="module")
def portal(s3: S3) -> Iterator[LivePortal]:
    with running_portal() as portal:
        (portal.data / "program.py").write_text(PROGRAM)
        yield portal


@pytest.fixture
def labels() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="evenkeel-labels-") as name:
        Path(name).chmod(0o755)
        (Path(name) / "labels.txt").write_text("steel")
        yield Path(name)


def put(s3: S3, slope: float, padding: int = 0) -> None:
    points = [[x / 4, slope * x / 4] for x in range(1, 5)]
    s3.files().pipe_file(f"{s3.bucket}/points/train.json", json.dumps(points).encode())
    s3.files().pipe_file(f"{s3.bucket}/points/more/padding.bin", bytes(padding))


def set_secret(portal: LivePortal, s3: S3, **changes: str) -> None:
    with portal.api() as api:
        value = json.dumps(s3.options | changes)
        api.put("projects/default/secrets/STORE", json={"value": value}).raise_for_status()


def submit(portal: LivePortal, s3: S3, labels: Path, below: str = "points", **keys: Any) -> int:
    data = [
        {"name": "points", "url": f"s3://{s3.bucket}/{below}", "secret": "STORE"},
        {"name": "labels", "url": f"file://{labels}/labels.txt"},
    ]
    command = f"python {portal.data / 'program.py'}"
    wish = {"model_type": None, "command": command, "total_steps": 60, "gpus": 1, "batch_size": 1}
    return int(portal.submit(**(wish | {"data": data} | keys))["number"])


def log_of(portal: LivePortal, number: int) -> str:
    with portal.api() as api:
        return api.get(f"jobs/{number}/logs", headers={"Accept": "text/plain"}).text


def done(portal: LivePortal, number: int) -> str:
    job = portal.wait_state(number, "succeeded", "failed", timeout_s=120)
    log = log_of(portal, number)
    assert job["state"] == "succeeded", (job["reason"], log)
    return log


def notices(portal: LivePortal, number: int) -> list[str]:
    with portal.api() as api:
        events = api.get(f"jobs/{number}/events").json()["results"]
    return [event["text"].partition(": ")[2] for event in events if event["kind"] == "notice"]


def look(portal: LivePortal, numbers: list[int], seen: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """One of them fetches, the other waits for it."""
    jobs = [portal.job(number) for number in numbers]
    seen |= {(job["state"], job["fetching"]) for job in jobs if job["fetching"]}
    return seen


def test_two_jobs_train_on_what_is_downloaded_once(portal: LivePortal, s3: S3, labels: Path) -> None:
    put(s3, 2.0, padding=6 << 20)
    set_secret(portal, s3)
    s3.door.answers_bytes_per_s = 1 << 20
    try:
        numbers = [submit(portal, s3, labels) for _ in range(2)]
        seen: set[tuple[str, str]] = set()
        portal.wait_for("its progress", lambda: any("6.0 MiB" in words for _, words in look(portal, numbers, seen)))
        assert {state for state, _ in seen} == {"starting"}
        logs = [done(portal, number) for number in numbers]
    finally:
        s3.door.answers_bytes_per_s = 0
    assert ["slope 2.0 of steel" in log for log in logs] == [True, True]
    said = [notice for number in numbers for notice in notices(portal, number) if notice.startswith("data points: ")]
    assert sorted("fetched in" in notice for notice in said) == [False, True]
    whole = "".join(logs) + json.dumps([portal.job(number) for number in numbers])
    assert s3.options["secret"] not in whole
    again = submit(portal, s3, labels)
    done(portal, again)
    assert any(notice.endswith("here already") for notice in notices(portal, again))
    kept = list((portal.data / "data_cache" / "default").glob("*/data"))
    put(s3, 3.0)
    assert "slope 3.0 of steel" in done(portal, submit(portal, s3, labels))
    assert len(list((portal.data / "data_cache" / "default").glob("*/data"))) == len(kept) + 1


def test_what_the_store_denies_fails_the_job_at_once_and_says_so(portal: LivePortal, s3: S3, labels: Path) -> None:
    set_secret(portal, s3)
    number = submit(portal, s3, labels, below="nothing/here")
    job = portal.wait_state(number, "succeeded", "failed", timeout_s=120)
    assert (job["state"], job["exit"]["reason"], len(job["runs"])) == ("failed", "data_unavailable", 1)
    assert job["reason"]["text"].startswith(f"Its data cannot be had: data points: s3://{s3.bucket}/nothing/here: File")
    with portal.api() as api:
        body = {"project": "default", "command": "train", "total_steps": 1}
        refused = api.post("jobs", json=body | {"data": [{"name": "a", "url": "s3://k:s@b/x"}]})
        assert refused.status_code == 400
        assert refused.json()["errors"][0]["field"] == "data.0.url"


def test_doctor_says_what_the_cluster_offers(portal: LivePortal) -> None:
    said = portal.manage("doctor")
    assert "ok    data by URL: file://, s3://, s3a://" in said
    assert f"ok    data cache: {portal.data / 'data_cache'}: " in said
    assert "ok    data of a project: at most 102,400 MiB on each node" in said
