"""A whole portal on an engine whose nodes share no checkpoints: a job moves from one to another by the store."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.client.s3 import KEY, S3, SECRET
from tests.live_portal import LivePortal

#: Says in its log at which step it began, how many it had seen by then, and where.
PROGRAM = """
import os, time, evenkeel
with evenkeel.training() as run:
    state = run.load() or {"seen": 0}
    print("began", run.step, state["seen"], os.environ["EVENKEEL_CHECKPOINT_DIR"], flush=True)
    for step in run.steps():
        state["seen"] += 1
        time.sleep(0.05)
        run.save(state)
"""


def node_of(portal: LivePortal, number: int) -> str:
    where = "SELECT n.name FROM jobs_hold h JOIN jobs_accelerator a ON a.id = h.accelerator_id "
    where += (
        "JOIN jobs_node n ON n.id = a.node_id JOIN jobs_run r ON r.id = h.run_id JOIN jobs_job j ON j.id = r.job_id "
    )
    [[name]] = portal.rows(f"{where} WHERE j.number = {number} AND upper_inf(h.during)")
    return str(name)


@pytest.fixture
def caches() -> Iterator[Path]:
    """Of all nodes, whose account is the portal's."""
    made = Path(tempfile.mkdtemp(prefix="evenkeel-caches-"))
    made.chmod(0o777)
    yield made
    shutil.rmtree(made, ignore_errors=True)


def settings_for(s3: S3, caches: Path) -> dict[str, str]:
    return {
        "EVENKEEL_VIRTUAL_ACCELERATORS": "",
        "EVENKEEL_CHECKPOINT_URL": s3.url,
        "EVENKEEL_CHECKPOINT_ENDPOINT": s3.options["endpoint_url"],
        "EVENKEEL_CHECKPOINT_KEY": KEY,
        "EVENKEEL_CHECKPOINT_SECRET": SECRET,
        "EVENKEEL_CHECKPOINT_CACHE_DIR": str(caches / "%n"),
    }


def check_moving_to_a_node_that_has_nothing(portal: LivePortal, s3: S3) -> None:
    said = portal.examined()
    assert re.search(r"^ok .*checkpoint store: .*s3fs", said, re.MULTILINE), said
    assert f"ok    checkpoints: {s3.url}: 8 MiB written at" in said
    wish: dict[str, Any] = {"gpus": {"min": 1, "max": 1}, "checkpoint": {"every_steps": 20, "keep": 2}}
    program = portal.files / "program.py"
    program.write_text(PROGRAM)
    number = portal.submit(model_type=None, command=f"python {program}", total_steps=1500, batch_size=8, **wish)[
        "number"
    ]
    portal.wait_for("a checkpoint in the store", lambda: s3.complete(), 120)
    first = node_of(portal, number)
    with portal.api() as api:
        api.post(f"nodes/{first}/drain", json={"reason": "a new fan"}).raise_for_status()
    portal.wait_for("its move", lambda: portal.job(number)["state"] == "running" and _moved(portal, number, first), 180)
    job = portal.wait_state(number, "succeeded", "failed", timeout_s=300)
    assert (job["state"], job["step"]) == ("succeeded", 1500)
    with portal.api() as api:
        log = api.get(f"jobs/{number}/logs", headers={"Accept": "text/plain"}).text
    began = [line.split()[1:] for line in log.splitlines() if line.startswith("began")]
    assert began[0][:2] == ["0", "0"]
    assert int(began[1][0]) == int(began[1][1]) > 0, began
    assert len({place for _, _, place in began}) == 2, "two nodes, two caches"
    assert not list((portal.files / "jobs").glob("*/checkpoints/step-*")), "none lies in the shared directory"
    assert s3.complete()[-1] == 1500
    events = portal.rows("SELECT text FROM jobs_jobevent WHERE text LIKE '%is in the store%'")
    assert any(f"checkpoint step {began[1][0]} " in text for [text] in events), events


def _moved(portal: LivePortal, number: int, first: str) -> bool:
    try:
        return node_of(portal, number) != first
    except ValueError:
        return False
