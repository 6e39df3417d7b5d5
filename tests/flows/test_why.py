"""One portal, several jobs that wait: each says why, by its limit or cause, from a round of the last seconds."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tests.live_portal import LivePortal, running_portal

pytestmark = [pytest.mark.whole, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def live_portal() -> Iterator[LivePortal]:
    with running_portal() as portal:
        yield portal


def call(portal: LivePortal, method: str, path: str, body: Any = None) -> Any:
    with portal.api() as api:
        return api.request(method, path, json=body).raise_for_status().json()


def waiting(portal: LivePortal, gpus: int, **keys: Any) -> int:
    job = portal.submit(model_type=None, command="sleep 600", total_steps=5, gpus={"min": gpus, "max": gpus}, **keys)
    return int(job["number"])


def test_every_waiting_job_says_why(live_portal: LivePortal) -> None:
    portal = live_portal
    call(portal, "PUT", "policy", {"name": "multifactor", "parameters": {}})
    call(portal, "POST", "projects", {"key": "speech", "name": "Speech"})
    call(portal, "POST", "limits", {"project": "speech", "kind": "running_jobs", "limit": "0"})
    running = waiting(portal, 5)
    portal.wait_state(running, "running", timeout_s=120)
    jobs = {
        "resources": waiting(portal, 4),
        "priority": waiting(portal, 3),
        "quota_jobs": waiting(portal, 1, project="speech"),
        "dependency": waiting(portal, 1, dependencies=[{"type": "afterany", "job": running}]),
        "HELD": waiting(portal, 1, name="held"),
    }
    call(portal, "POST", f"jobs/{jobs['HELD']}/hold")

    def why(token: str) -> dict[str, Any]:
        return dict(call(portal, "GET", f"jobs/{jobs[token]}/explanation"))

    def says(token: str) -> bool:
        return bool(why(token)["code"] == token)

    def is_newer(token: str, than: str) -> bool:
        return bool(why(token)["checked_at"] > than)

    for token in jobs:
        portal.wait_for(f"{token} to be said", partial(says, token))
        found = why(token)
        assert found["text"], token
        assert found["would_change"], token
        portal.wait_for("a newer round", partial(is_newer, token, found["checked_at"]))
    limit = why("quota_jobs")["detail"]
    assert (limit["level"], limit["limit"]) == ("project Speech", "running jobs")
    assert f"#{jobs['resources']}" in why("priority")["text"]
    call(portal, "POST", f"jobs/{running}/cancel")
    (node,) = call(portal, "GET", "nodes")
    call(portal, "POST", f"nodes/{node['name']}/drain")
    jobs["node"] = waiting(portal, 6)
    portal.wait_for("the drained node to be named", lambda: why("node")["code"] == "node_unavailable")
    assert f"{node['name']} (drained)" in why("node")["text"]
