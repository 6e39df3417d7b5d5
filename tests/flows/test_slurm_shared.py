"""A whole portal on a real Slurm whose nodes others use, too: shown, planned around, and used once they have ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from scripts.slurm_cluster import SlurmCluster
from tests.executors.slurm import portal_settings
from tests.executors.slurm import slurm as slurm  # a fixture
from tests.flows.test_slurm_waits import WISH, cancel, launches, says, submitted
from tests.live_portal import LivePortal, engine_portal

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module", params=["nodes", "delegate"])
def portal(slurm: SlurmCluster, request: pytest.FixtureRequest) -> Iterator[LivePortal]:
    with engine_portal(slurm, **portal_settings(slurm), EVENKEEL_SLURM_PLACEMENT=request.param) as portal:
        yield portal
        # To the next portal what this one had not ended yet would be jobs of others.
        portal.wait_for("Slurm to end ours", lambda: launches(slurm, "running,pending,completing") == [])


@pytest.fixture
def foreign(slurm: SlurmCluster) -> Iterator[Callable[..., str]]:
    """Jobs of somebody else, which end with the test."""
    numbers: list[str] = []

    def submit(*words: str) -> str:
        who = ("--uid=65534", "--gid=65534", "--output=/dev/null", "--chdir=/tmp", "--time=60", "--parsable")
        numbers.append(slurm._ask("sbatch", *who, *words, "--wrap", "sleep 3600").strip())
        assert numbers[-1].isdecimal()
        return numbers[-1]

    yield submit
    for number in numbers:
        slurm._ask("scancel", number)


def nodes(portal: LivePortal) -> dict[str, dict[str, Any]]:
    with portal.api() as api:
        return {node["name"]: node for node in api.get("nodes").raise_for_status().json()}


def by_others(portal: LivePortal, name: str) -> int:
    found = nodes(portal).get(name)  # None: no round has seen it yet
    return [gpu["state"] for gpu in found["accelerators"]].count("others") if found else 0


def places(portal: LivePortal, number: int) -> set[str]:
    return {gpu["node"] for gpu in portal.wait_state(number, "running", timeout_s=150)["allocation"]["gpus"]}


def preview(portal: LivePortal, gpus: int) -> dict[str, Any]:
    with portal.api() as api:
        wish = {"command": "true", "gpus": {"min": gpus, "max": gpus}, "project": "default", **WISH}
        return dict(api.post("jobs/preview", json=wish).raise_for_status().json())


def test_gpus_of_others_are_shown_planned_around_and_used_once_they_are_free(
    portal: LivePortal, slurm: SlurmCluster, foreign: Callable[..., str]
) -> None:
    theirs = foreign("--nodelist=gpu2", "--gres=gpu:2")
    portal.wait_for("theirs to be seen", lambda: by_others(portal, "gpu2") == 2, 120)
    [taken] = nodes(portal)["gpu2"]["taken"]
    until = datetime.fromisoformat(taken["until_at"])
    assert taken["gpus"] == 2
    assert timedelta(minutes=40) < until - datetime.now(UTC) <= timedelta(minutes=61)
    assert {gpu["node"] for gpu in preview(portal, 4)["allocation"]["gpus"]} <= {"gpu1", "gpu3"}
    first, second = submitted(portal, 4), submitted(portal, 4)
    assert places(portal, first) | places(portal, second) == {"gpu1", "gpu3"}
    third = submitted(portal, 4)
    job = says(portal, third, f"2 GPUs of gpu2 are used by other Slurm jobs until {until:%H:%M} UTC")
    assert job["state"] == "queued"
    # A preview may be of some seconds before on a busy machine.
    portal.wait_for("a preview that knows of all", lambda: preview(portal, 4)["verdict"] == "later", 20)

    def expected() -> datetime | None:
        told = portal.job(third)["expected_start"]
        return datetime.fromisoformat(told["p50_at"]) if told and told["p50_at"] else None

    start = portal.wait_for("an expected start", expected, 300)
    assert abs(start - until) < timedelta(minutes=5)
    slurm._ask("scancel", theirs)
    assert places(portal, third) == {"gpu2"}
    assert by_others(portal, "gpu2") == 0
    for number in (first, second, third):
        cancel(portal, number)


def test_nodes_whose_processors_or_memory_others_have_are_left_alone(
    portal: LivePortal, foreign: Callable[..., str]
) -> None:
    foreign("--nodelist=gpu1", "--ntasks=16")
    foreign("--nodelist=gpu2", "--mem=62000")
    foreign("--nodelist=gpu3", "--ntasks=4")
    portal.wait_for("theirs to be seen", lambda: [by_others(portal, f"gpu{n}") for n in (1, 2, 3)] == [4, 4, 0], 120)
    waits = submitted(portal, 8)
    says(portal, waits, "8 GPUs of gpu1 and gpu2 are used by other Slurm jobs")  # until two times, maybe
    job = submitted(portal, 4)
    assert places(portal, job) == {"gpu3"}  # on the processors that are left there
    for number in (waits, job):
        cancel(portal, number)
