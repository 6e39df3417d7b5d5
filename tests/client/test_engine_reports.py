"""What the runner reports of a program, and what it makes of the memory that it uses."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from evenkeel.runner import engine

from tests.client.engine_stage import Course, Data, Nodes, Store, below, course, make

__all__ = ["course", "make"]  # the fixtures


# Memory -----------------------------------------------------------------------------------------------------


def test_memory_is_looked_at_once_a_second_and_the_gauge_with_it(
    course: Callable[..., Course], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, sampled, kills = course(), list[float](), [5]
    monkeypatch.setattr(run.runner._gauge, "sample", lambda: sampled.append(run.stage.clock.now - 1_000))
    monkeypatch.setattr(engine, "kernel_oom_kills", lambda: kills[0])
    for _ in range(9):
        run.runner._check_limits()
        run.stage.clock.now += 0.25
    assert sampled == [0.0, 1.0, 2.0]
    assert run.runner._oom_kills == 5
    run.runner._oom, kills[0] = True, 6  # what brought a worker down stays known
    run.stage.clock.now += 5
    run.runner._check_limits()
    assert run.runner._oom_kills == 5


@pytest.mark.parametrize(
    ("limit_mib", "resident", "used_mib"), [(None, 300.0, 600.0), (600, 300.0, 600.0), (599, 300.0, 20.0)]
)
def test_shared_pages_are_told_apart_only_where_they_matter(
    course: Callable[..., Course],
    monkeypatch: pytest.MonkeyPatch,
    limit_mib: int | None,
    resident: float,
    used_mib: float,
) -> None:
    run = course(memory_mib=limit_mib)
    monkeypatch.setattr(engine, "descendants", lambda pid: [below(5, rss_mib=resident), below(6, rss_mib=resident)])
    monkeypatch.setattr(engine, "proportional_mib", lambda pid: 10.0)
    assert run.runner._used_mib() == used_mib


def test_what_carries_checkpoints_and_data_is_not_the_programs(
    course: Callable[..., Course], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = course(memory_mib=100)
    monkeypatch.setattr(engine, "descendants", lambda pid: [below(one) for one in (70, 71, 72)] * (pid == os.getpid()))
    run.runner._storing, run.runner._data = Store(pid=71), Data(dict)
    assert [process.pid for process in run.runner._below()] == [70]


# What is reported -------------------------------------------------------------------------------------------


def test_a_report_counts_the_program_and_the_other_nodes(
    course: Callable[..., Course], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, asked = course(epoch=6), list[Any]()

    def gauge(*given: Any) -> list[float]:
        asked.append(given)
        return [0.5]

    processes = [below(5, cpu_s=1.25, rss_mib=10.04), below(6, cpu_s=0.5, rss_mib=20.0)]
    monkeypatch.setattr(engine, "descendants", lambda pid: processes)
    monkeypatch.setattr(run.runner._gauge, "take", gauge)
    run.says(
        {"kind": "ready", "step": 2},
        {"kind": "step", "step": 3, "metrics": {"loss": 0.5}},
        {"kind": "checkpoint", "step": 3, "path": "step-3", "bytes": 7, "seconds": 0.5},
        {"kind": "notice", "text": "from the program"},
        {"kind": "link", "name": "board", "url": "https://a.example.org/"},
    )
    run.runner._listener.listen()
    run.runner._notice_ready()
    found = run.runner._report()
    assert found | {"metrics": None} == {
        "epoch": 6,
        "phase": "running",
        "step": 3,
        "ready_at": 5.0,
        "checkpoint": {"step": 3, "path": "step-3", "bytes": 7, "seconds": 0.5, "at": 5.0},
        "metrics": None,
        "usage": {"cpu_s": 1.75, "rss_mib": 30.0},
        "gpu_utilisation": [0.5],
        "resources": None,
        "notices": ["from the program"],
        "fetching": None,
        "links": {"board": "https://a.example.org/"},
        "sdk": True,
        "exit": None,
    }
    assert [line["loss"] for line in found["metrics"]] == [0.5]
    assert asked == [(run.stage.clock.now, 1.75, 3)]
    run.runner._party = Nodes()
    again = run.runner._report()
    assert again["usage"] == {"cpu_s": 3.75, "rss_mib": 130.0}
    assert (again["gpu_utilisation"], again["metrics"], again["notices"]) == ([0.25], [], [])


def test_with_a_store_only_what_is_in_it_is_a_checkpoint(course: Callable[..., Course]) -> None:
    run = course()
    run.runner._heard.checkpoint = {"step": 9}
    run.runner._storing = Store(stored=None)
    assert run.runner._report()["checkpoint"] is None
    run.runner._storing.stored = {"step": 5}
    assert run.runner._report()["checkpoint"] == {"step": 5}


def test_notices_of_the_program_the_store_and_the_data_are_reported_once(course: Callable[..., Course]) -> None:
    run = course()
    run.runner._heard.notices.append("a")
    run.runner._storing, run.runner._data = Store(said=["b"]), Data(dict)
    run.runner._data.said = ["c", "d"]
    assert run.runner._take_notices() == ["a", "b", "c", "d"]
    assert run.runner._take_notices() == []
