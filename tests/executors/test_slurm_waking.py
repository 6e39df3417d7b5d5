"""The wake-up time of nodes that power saving has powered down, against a Slurm that is played."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scheduling.executors.slurm.cluster import waking as module
from scheduling.executors.slurm.cluster.inventory import SlurmNode, parse_node
from scheduling.executors.slurm.cluster.waking import Waking

CONFIG = "ResumeProgram           = /x\nResumeTimeout           = 120 sec\n"


class Site:
    """In place of Slurm's commands."""

    def recalling_settings(self) -> Site:
        return self

    def partitions(self) -> tuple[str, str]:
        return "", CONFIG


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1_000.0]
    monkeypatch.setattr("scheduling.executors.slurm.cluster.waking.time.time", lambda: now[0])
    return now


def node(state: str, name: str = "gpu1") -> SlurmNode:
    return parse_node(f"NodeName={name} Gres=gpu:a100:2 State={state} CPUTot=4 RealMemory=100", False, 0)[0]


def boot_s(place: Path, state: str) -> float:
    """Another object each time, as processes of the portal have."""
    site: Any = Site()
    [info] = Waking(place, site).timed({"gpu1": node(state)})
    return info.boot_s


def test_slurms_own_limit_counts_until_a_wake_up_was_seen(tmp_path: Path, clock: list[float]) -> None:
    assert boot_s(tmp_path, "IDLE") == 0.0
    assert boot_s(tmp_path, "IDLE+POWERED_DOWN") == 120.0
    clock[0] += 500
    assert boot_s(tmp_path, "IDLE+POWERED_DOWN") == 120.0
    assert boot_s(tmp_path, "MIXED+POWERED_DOWN") == 120.0  # a launch was sent there
    clock[0] += 30
    assert boot_s(tmp_path, "MIXED+NOT_RESPONDING+POWERING_UP") == 90.0
    clock[0] += 15
    assert boot_s(tmp_path, "MIXED") == 0.0
    assert boot_s(tmp_path, "IDLE+POWERED_DOWN") == 45.0
    assert boot_s(tmp_path, "ALLOCATED#") == 45.0
    clock[0] += 60  # longer than the last time
    assert boot_s(tmp_path, "ALLOCATED#") == module.LEAST_S


def test_a_node_that_did_not_come_up_has_taken_no_time(tmp_path: Path, clock: list[float]) -> None:
    assert boot_s(tmp_path, "IDLE+POWERING_UP") == 120.0
    clock[0] += 20
    assert boot_s(tmp_path, "DOWN+NOT_RESPONDING") == 0.0
    assert boot_s(tmp_path, "IDLE+POWERED_DOWN") == 120.0


def test_what_a_launch_waits_for_is_said_with_how_long_that_takes(tmp_path: Path, clock: list[float]) -> None:
    site: Any = Site()
    waking = Waking(tmp_path, site)
    names = ("gpu1", "gpu2")
    assert waking.in_words(names) == "gpu[1-2], for which Slurm has 120 s"
    for state in ("IDLE+POWERING_UP", "IDLE"):
        waking.timed({name: node(state, name) for name in names})
        clock[0] += 30
    assert waking.in_words(names) == "gpu[1-2], which took 30 s last time"
    assert waking.in_words(["gpu1", "gpu3"]) == "gpu[1,3], for which Slurm has 120 s"
