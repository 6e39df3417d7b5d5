"""A job that sleeps on its GPUs: warned, left alone for the asking, then parked, and taken up again where it was."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.live_portal import LivePortal, running_portal

pytestmark = pytest.mark.timeout(400)

#: Each worker sleeps once, in the middle of a step, as those that wait for data do.
SLEEPER = """
import os, pathlib, time, evenkeel
slept = pathlib.Path(f"slept-{os.environ['RANK']}")
with evenkeel.training() as run:
    for step in run.steps():
        time.sleep(0.05)
        if step == 10 and not slept.exists():
            slept.touch()
            time.sleep(40)
        run.save({"step": step})
"""


@pytest.fixture(scope="module")
def live_portal() -> Iterator[LivePortal]:
    with running_portal() as portal:
        yield portal


@pytest.mark.slow
def test_it_is_warned_extended_parked_and_resumed(live_portal: LivePortal) -> None:
    with live_portal.api() as api:
        rule = {"utilisation_below": 0, "warn_after_s": 4, "release_after_s": 8, "extension_s": 6, "extensions_max": 1}
        api.put("idle-rule", json=rule).raise_for_status()
    (live_portal.data / "sleeper.py").write_text(SLEEPER)
    (live_portal.data / "sleeper.py").chmod(0o644)
    command = f"python {live_portal.data / 'sleeper.py'}"
    made = live_portal.submit(
        model_type=None, command=command, total_steps=200, gpus={"min": 2, "max": 2}, checkpoint={"every_steps": 5}
    )
    number = made["number"]
    warning = live_portal.wait_for("the warning", lambda: live_portal.job(number)["idle"])
    assert warning["release_at"]
    with live_portal.api() as api:
        extended = api.post(f"jobs/{number}/extend").raise_for_status().json()
        assert extended["idle"]["release_at"] == extended["idle"]["extended_until_at"]
        assert api.post(f"jobs/{number}/extend").status_code == 409
    parked = live_portal.wait_for("it to be parked", lambda: live_portal.job(number)["hold"])
    assert parked["kind"] == "idle"
    assert parked["at"] >= extended["idle"]["extended_until_at"]
    assert "resumes from its checkpoint" in parked["text"]
    queued = live_portal.wait_state(number, "queued", timeout_s=120)
    assert queued["allocation"] is None
    assert "Parked as idle" in queued["reason"]["text"]
    assert 10 <= queued["step"] < 200
    with live_portal.api() as api:
        api.post(f"jobs/{number}/release").raise_for_status()
    ended = live_portal.wait_state(number, "succeeded", "failed", timeout_s=120)
    assert ended["state"] == "succeeded", ended
    with live_portal.api() as api:
        events = api.get(f"jobs/{number}/events?limit=200").json()["results"]
    kinds = [event["kind"] for event in reversed(events)]
    told = [kind for kind in kinds if kind in ("idle", "idle_extended", "held", "released")]
    assert told == ["idle", "idle_extended", "held", "released"]
