"""How often a whole portal asks slurmctld while nothing changes, as `sdiag` counts it: jobs of one account, and jobs of
several people and projects."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable

import pytest

from scripts.slurm_cluster import SlurmCluster
from tests.executors.slurm import portal_settings, slurm_or_skipped
from tests.flows.test_slurm_person import There, made, there  # noqa: F401
from tests.live_portal import LivePortal, engine_portal

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

#: After a launch its runs are looked at in each round for two minutes.
QUIET_AFTER_S, MINUTE_S = 130.0, 60.0
PROJECTS = ("vision", "speech", "robots", "words")
SLEEPS = {"model_type": None, "batch_size": 8, "total_steps": 10**7, "command": "sleep 3600"}


def requests(slurm: SlurmCluster) -> dict[str, int]:
    """Since the counts were reset: those that somebody asks, not what daemons say to each other."""
    text = slurm._ask("sdiag").partition("message type")[2].partition("by user")[0]
    found = {name: int(count) for name, count in re.findall(r"(REQUEST_\w+) .*?count:(\d+)", text)}
    return {name: count for name, count in found.items() if name != "REQUEST_STATS_INFO"}


def quiet_minute(portal: LivePortal, slurm: SlurmCluster, numbers: Iterable[int]) -> dict[str, int]:
    for number in numbers:
        portal.wait_state(number, "running", timeout_s=120)
    time.sleep(QUIET_AFTER_S)
    slurm._ask("sdiag", "--reset")
    time.sleep(MINUTE_S)
    return requests(slurm)


def make_projects(portal: LivePortal) -> None:
    with portal.api() as api:
        for key in PROJECTS:
            body = {"key": key, "name": key.title(), "parent": "default"}
            api.post("projects", json=body).raise_for_status()


def test_one_account_for_all() -> None:
    with (
        slurm_or_skipped(nodes=2, gpus=2) as slurm,
        engine_portal(slurm, **portal_settings(slurm)) as portal,
    ):
        make_projects(portal)
        gang = {"gpus": {"min": 1, "max": 1}}
        numbers = [portal.submit(project=key, **SLEEPS, **gang)["number"] for key in PROJECTS]
        found = quiet_minute(portal, slurm, numbers)
        assert 0 < sum(found.values()) < 20, found


def test_people_of_several_projects(there: There) -> None:  # noqa: F811
    make_projects(there.portal)
    numbers = [
        there.submit(name, project=key, command="sleep 3600")["number"]
        for name, key in zip(("alice", "bob") * 2, PROJECTS, strict=True)
    ]
    found = quiet_minute(there.portal, there.slurm, numbers)
    assert 0 < sum(found.values()) < 20, found
