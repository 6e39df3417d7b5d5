"""A whole portal on a real Slurm that switches nodes off: they are planned with, woken, waited for, and not billed
before they are up."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from scripts.slurm_cluster import RESUME_TIMEOUT_S, SlurmCluster
from tests.executors.slurm import portal_settings, slurm_or_skipped
from tests.live_portal import LivePortal, engine_portal

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

BOOT_S = 45.0
#: Less than a wake-up takes; of one whose nodes are up Slurm takes note within 30 s.
WAIT_S = 40
WISH: dict[str, Any] = {"model_type": None, "batch_size": 8, "total_steps": 10**7, "command": "sleep 15"}
BEGAN_AT = """
    SELECT min(lower(h.during)) FROM jobs_hold h JOIN jobs_run r ON r.id = h.run_id JOIN jobs_job j ON j.id = r.job_id
    WHERE j.number = {}
"""


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmCluster]:
    with slurm_or_skipped(nodes=3, gpus=2, boot_s=BOOT_S) as cluster:
        yield cluster


@pytest.fixture(params=["nodes", "delegate"])
def portal(slurm: SlurmCluster, request: pytest.FixtureRequest) -> Iterator[LivePortal]:
    settings = portal_settings(slurm) | {
        "EVENKEEL_SLURM_PLACEMENT": request.param,
        "EVENKEEL_SLURM_LOOK_S": "1",
        "EVENKEEL_ENGINE_WAIT_S": str(WAIT_S),
    }
    with engine_portal(slurm, **settings) as portal:
        yield portal
    slurm.wake("gpu3")
    slurm.await_idle()


def kinds(portal: LivePortal, number: int) -> list[str]:
    where = f"e.job_id = j.id WHERE j.number = {number} ORDER BY e.id"
    return [kind for (kind,) in portal.rows(f"SELECT e.kind FROM jobs_jobevent e JOIN jobs_job j ON {where}")]


def boots(portal: LivePortal) -> dict[str, float]:
    return dict(portal.rows("SELECT name, boot_s FROM jobs_node WHERE boot_s > 0"))


def power(portal: LivePortal) -> str | None:
    """Of gpu3, as its page has it."""
    with portal.api() as api:
        found = api.get("nodes/gpu3").raise_for_status().json()
    assert (found["power"] is None) == (found["up_in_s"] is None)
    return found["power"]  # type: ignore[no-any-return]


def preview(portal: LivePortal, gpus: int) -> tuple[list[str], float]:
    """What such a job is warned of, and in how many seconds it is expected to start."""
    with portal.api() as api:
        body = WISH | {"project": "default", "gpus": {"min": gpus, "max": gpus}}
        said = api.post("jobs/preview", json=body).raise_for_status().json()

        def foreseen() -> dict[str, Any] | None:
            answer = api.get(f"previews/{said['forecast']}").raise_for_status().json()
            return dict(answer["forecast"]["start"]) if answer["status"] == "done" else None

        start = portal.wait_for("its forecast", foreseen, 120)
    return said["warnings"], (moment(start["p50_at"]) - moment(start["as_of"])).total_seconds()


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def test_a_node_that_is_powered_down_is_woken_for_a_job_and_costs_nothing_meanwhile(
    portal: LivePortal, slurm: SlurmCluster
) -> None:
    ready = "SELECT 1 FROM jobs_node HAVING count(*) = 3 AND bool_and(check_state = '' AND boot_s = 0)"
    portal.wait_for("nodes", lambda: portal.rows(ready), 120)
    slurm.power_down("gpu3")
    portal.wait_for("its sleep", lambda: boots(portal) == {"gpu3": RESUME_TIMEOUT_S}, 60)
    assert power(portal) == "powered_down"
    warnings, waits_s = preview(portal, 6)
    assert any(one.startswith("gpu3 is powered down") for one in warnings)
    assert waits_s == RESUME_TIMEOUT_S

    number = portal.submit(**WISH, gpus={"min": 6, "max": 6})["number"]
    words = f"Waits in Slurm: nodes are powering up (gpu3, for which Slurm has {RESUME_TIMEOUT_S} s)"
    portal.wait_for("its reason", lambda: portal.job(number)["reason"]["text"].startswith(words), 60)
    assert portal.job(number)["state"] == "starting"
    assert power(portal) == "powering_up"
    portal.wait_state(number, "succeeded", timeout_s=240)
    assert kinds(portal, number).count("GPUS_FREE") == 1, "it was not placed anew"
    up_at = datetime.fromtimestamp((slurm.root / "run" / "slurmd.gpu3.pid").stat().st_mtime, UTC)
    [(began_at,)] = portal.rows(BEGAN_AT.format(number))
    assert began_at > up_at, "nothing is billed before"
    assert power(portal) is None

    slurm.await_idle()
    slurm.power_down("gpu3")
    portal.wait_for("its sleep", lambda: BOOT_S / 2 < boots(portal).get("gpu3", 0.0) < RESUME_TIMEOUT_S, 60)
    awake = portal.submit(**WISH, gpus={"min": 4, "max": 4})["number"]
    portal.wait_state(awake, "succeeded", timeout_s=120)
    assert boots(portal).keys() == {"gpu3"}, "none is woken where those that are up will do"
