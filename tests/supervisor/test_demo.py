import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from accounts.models import Scope, User
from accounts.tokens import DEFAULT_SCOPES
from portal.supervisor import demo as demo_module
from portal.supervisor.demo import Demo, fitting_speedup, verdict
from portal.supervisor.demo_report import report
from tests.portal.api_calls import Api
from tests.portal.world import World
from tests.supervisor.running import ROOT, free_port


def ended(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "number": number,
        "model_type": "resnet50",
        "state": "succeeded",
        "step": 2000,
        "total_steps": 2000,
        "allocation": None,
        "submitted_at": f"2026-11-21T14:00:{number:02}.000Z",
        "finished_at": f"2026-11-21T14:01:{number:02}.000Z",
        "times": {"queueing_s": 1.0, "launching_s": 4.0, "running_s": 1055.2},
        "resizes": 2,
        "cost": {"so_far": "1.5000", "currency": "USD"},
        **changes,
    }


HOLD = {"node": "a", "index": 0, "from_at": "2026-11-21T13:00:00.000Z", "to_at": "2026-11-21T14:00:31.000Z"}


def test_the_table_has_real_and_workload_seconds() -> None:
    timeline = {"nodes": [{"name": "a", "gpus": 2}], "holds": [HOLD, {**HOLD, "index": 1, "to_at": None}]}
    text = "\n".join(report([ended(1), ended(1)], timeline, variance=0.0123, speedup=5.0))
    assert "job  model     state      queueing  launching        running  resizes      cost" in text
    assert "#1   resnet50  succeeded     1 (5)     4 (20)  1,055 (5,276)        2  1.50 USD" in text
    assert "completion of the workload    60 (300)" in text
    assert "utilisation                   75 %" in text
    assert "slowdown variance             0.0123" in text
    assert "cost                          3.00 USD" in text


def test_it_succeeds_only_when_all_finished_and_one_was_rescaled() -> None:
    assert verdict([ended(1), ended(2, resizes=0)]) == 0
    assert verdict([ended(1, resizes=0), ended(2, resizes=0)]) == 1
    assert verdict([ended(1), ended(2, state="failed")]) == 1


def test_the_pace_fits_the_cores() -> None:
    assert [fitting_speedup(cores) for cores in (1, 2, 4, 64)] == [1.5, 1.5, 3.0, 4.5]


class Portal:
    """Answers as the REST API does; every job ends when it was looked at twice."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.looks: dict[str, int] = {}
        self.failures = 1

    def __call__(self, request: httpx.Request) -> httpx.Response:
        name = request.url.path.removeprefix("/api/v1/")
        if name == "jobs" and request.method == "GET":
            return httpx.Response(200, json={"results": []})
        if name == "jobs":
            self.bodies.append(json.loads(request.content))
            self.keys.append(request.headers["Idempotency-Key"])
            return httpx.Response(201, json={"number": len(self.bodies)})
        if name == "live/cluster":
            return httpx.Response(200, json={"state": {"tiles": {"gpus_busy": 4, "variance": 0.02}}})
        if self.failures:
            self.failures -= 1
            raise httpx.ConnectError("the web process is being restarted")
        self.looks[name] = self.looks.get(name, 0) + 1
        state = "succeeded" if self.looks[name] > 1 else "running"
        allocation = {"count": 3} if state == "running" else None
        return httpx.Response(200, json=ended(int(name.split("/")[1]), state=state, allocation=allocation))


def test_it_submits_the_workload_and_follows_it_through_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_module, "POLL_S", 0.0)
    portal = Portal()
    with httpx.Client(base_url="http://portal/api/v1/", transport=httpx.MockTransport(portal)) as api:
        demo = Demo(api, speedup=10_000)
        jobs = demo.run()
    assert [job["state"] for job in jobs] == ["succeeded"] * 4
    assert [body["model_type"] for body in portal.bodies] == ["resnet50", "inception_v3"] * 2
    assert len(set(portal.keys)) == 4
    assert set(demo.variances) == {0.02}


@pytest.mark.django_db(transaction=True)
def test_only_with_a_policy_to_choose_it_may_choose_one() -> None:
    World()
    User.objects.create_superuser("root@example.org", "x")
    body = {"name": "static_partition", "parameters": {"n": 2}}
    for scopes, status in ((DEFAULT_SCOPES, 403), (Scope, 200)):
        with demo_module._signed_in(scopes) as client:
            token = client.headers["Authorization"].removeprefix("Bearer ")
            assert Api(token=token).put("policy", body).status == status
        assert Api(token=token).get("policy").status == 401


@pytest.mark.whole
@pytest.mark.timeout(300)
def test_the_demo_ends_by_itself_with_a_table(data: Path) -> None:
    """As `DEMO_EXIT=1 make demo` runs it, with a policy to choose and few steps."""
    place = data / "portal"
    environment = os.environ | {
        "DEMO_EXIT": "1",
        "EVENKEEL_DATA": str(place),
        "EVENKEEL_PORT": str(free_port()),
        "EVENKEEL_SPEEDUP": "20",
    }
    command = [sys.executable, "manage.py", "demo", "--steps", "60", "--policy", "static_partition:n=2"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert [line.split()[0] for line in said.splitlines() if " succeeded " in line] == ["#1", "#2", "#3", "#4"]
    assert "completion of the workload" in said
