"""A policy that makes jobs wait is tried in the shadow, promoted, and rolled back by the portal itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.live_portal import GENTLE, LivePortal, running_portal

pytestmark = [pytest.mark.whole, pytest.mark.timeout(900)]
GREEDY = {"policy": "fifo_gang", "parameters": {"gang": "max"}}
GUARD = {
    "guard_s": 3_600,
    "least_s": 1,
    "least_jobs": 1,
    "bounds": {"wait_p95_s": {"most": 10.0}, "slowdown_variance": None, "utilisation": None},
}


@pytest.fixture(scope="module")
def live_portal() -> Iterator[LivePortal]:
    with running_portal(EVENKEEL_VIRTUAL_ACCELERATORS="titan_xp:3") as portal:
        yield portal


def call(portal: LivePortal, method: str, path: str, body: Any = None) -> Any:
    with portal.api() as api:
        answer = api.request(method, path, json=body)
        assert answer.status_code < 400, answer.text
        return answer.json()


def train(portal: LivePortal) -> int:
    """As long as it takes, on one GPU or on all of them."""
    return int(portal.submit(**GENTLE, total_steps=10**6, gpus={"min": 1, "max": 3})["number"])


def test_a_policy_that_breaks_a_bound_is_rolled_back_by_itself(live_portal: LivePortal) -> None:
    portal = live_portal
    call(portal, "PUT", "policy", {"name": "f_scheduling", "parameters": {"v_bound": 0.2}})
    was = call(portal, "GET", "policy")["parameters"]
    first = train(portal)
    portal.wait_state(first, "running", timeout_s=120)
    made = call(portal, "POST", "rollouts", GREEDY | {"mode": "shadow"})
    place = f"rollouts/{made['id']}"

    # In the shadow: the live policy shares the GPUs, the candidate would let the second job wait.
    assert portal.pid("shadow") != portal.pid("lab")
    second = train(portal)
    portal.wait_state(second, "running", timeout_s=120)

    def differs() -> Any:
        return [one for one in call(portal, "GET", f"{place}/decisions")["results"] if one["different"]]

    # Of all processes it comes last: on a busy machine it takes its time.
    found = portal.wait_for("the shadow to differ", differs, 240)
    told = {job["number"]: job for one in found for job in one["jobs"]}
    assert told[second]["candidate"] is None
    assert told[second]["live"]["count"] >= 1
    assert call(portal, "GET", "policy")["name"] == "f_scheduling"
    shadow = call(portal, "GET", place)["shadow"]
    assert (shadow["failed"], shadow["error"]) == (0, "")

    # In force: whoever comes now waits for all three GPUs.
    promoted = call(portal, "POST", f"{place}/promote", GUARD)
    assert (promoted["phase"], call(portal, "GET", "policy")["name"]) == ("live", "fifo_gang")
    third = train(portal)
    portal.wait_for("a look at the bounds", lambda: call(portal, "GET", f"{place}/checks")["checks"])

    # A restart of the portal loses nothing of it.
    portal.interrupt()
    portal.start()
    ended = portal.wait_for("the roll-back", lambda: call(portal, "GET", place)["phase"] == "rolled_back", 120)
    assert ended
    ended = call(portal, "GET", place)
    assert "95th percentile of waits" in ended["outcome"]
    assert ended["ended_by"] is None
    policy = call(portal, "GET", "policy")
    assert (policy["name"], policy["parameters"]) == ("f_scheduling", was)
    portal.wait_state(third, "running", timeout_s=120)
    actions = {one["action"]: one["actor"] for one in call(portal, "GET", "audit?action=rollout.")["results"]}
    assert set(actions) == {"rollout.shadow", "rollout.promote", "rollout.roll_back"}
    assert actions["rollout.promote"] == portal.admin_email
    assert not actions["rollout.roll_back"]
    for number in (first, second, third):
        call(portal, "POST", f"jobs/{number}/cancel")
