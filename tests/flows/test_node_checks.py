"""A portal whose disk is too full, by the bound that it was given: its node gets no work until somebody says so."""

from __future__ import annotations

from typing import Any

import pytest

from tests.live_portal import GENTLE, LivePortal, running_portal
from tests.supervisor.running import overriding

pytestmark = [pytest.mark.whole, pytest.mark.timeout(300)]


def test_a_node_that_fails_its_check_gets_work_only_when_an_administrator_says_so() -> None:
    with running_portal(**overriding(NODE_CHECK_FREE_MIB=10**9)) as portal:
        _run(portal)


def _run(portal: LivePortal) -> None:
    number = portal.submit(**GENTLE | {"total_steps": 1_000_000})["number"]
    with portal.api() as api:
        portal.wait_for("the node", lambda: api.get("nodes").raise_for_status().json())

        def node() -> dict[str, Any]:
            return dict(api.get("nodes").raise_for_status().json()[0])

        portal.wait_for("its check", lambda: node()["check"]["state"] == "failed")
        found = node()
        items = {item["subject"]: item for item in found["check"]["last"]["items"]}
        assert {subject for subject, item in items.items() if item["result"] == "failed"} == {"free space"}
        assert "make room" in items["free space"]["fix"]
        portal.wait_for("the reason", lambda: "failed its check" in portal.job(number)["reason"]["text"])
        events = api.get(f"nodes/{found['name']}").json()["events"]
        assert [event["kind"] for event in events] == ["node_check_failed", "node_joined"]
        api.post(f"nodes/{found['name']}/use-anyway").raise_for_status()
        portal.wait_state(number, "running")
        api.post(f"nodes/{found['name']}/check").raise_for_status()
        portal.wait_for("it to fail again", lambda: node()["check"]["state"] == "failed")
        assert node()["check"]["last"]["cause"] == "asked"
        step = portal.job(number)["step"]
        portal.wait_for("it to train on", lambda: portal.job(number)["step"] > step)
        assert portal.job(number)["state"] == "running"
