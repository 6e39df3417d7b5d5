"""What jobs leave in Slurm and Ray: looking at one, whatever it left, ends in an answer and says nothing of others.

The engines are played: what they say of a run is the same as if they ran. What is read here is read in their own way.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from evenkeel.runner.reports import write_atomically
from evenkeel.runner.trees import remove_tree

from benchmarks.hostile_files import PLACES, Hostile
from scheduling.executors.base import Executor, Fact, Preparation
from scheduling.executors.local.layout import Layout, RunRecord
from scheduling.executors.local.spooling import MAX_REPORTS
from scheduling.executors.ray.executor import RayExecutor
from scheduling.executors.ray.records import Place
from scheduling.executors.slurm.commands import SlurmJob
from scheduling.executors.slurm.executor import SlurmExecutor
from scheduling.executors.slurm.names import launch_name
from tests.cases import in_turn
from tests.executors.test_hostile_files import place as place  # a fixture
from tests.executors.test_hostile_files import prepared
from tests.executors.test_slurm_forgetful import Scripted

#: The run with hostile files, and another one of its project.
HOSTILE, GOOD = RunRecord("r1", "j1", None), RunRecord("r2", "j2", None)
BOTH = [(HOSTILE.run_id, 1), (GOOD.run_id, 1)]
KINDS = sorted(Hostile(0).kinds)


class Controller(Scripted):
    """Slurm, with both runs in the same state."""

    states: str | None = "COMPLETED"

    def jobs(self, prefix: str) -> dict[str, list[SlurmJob]]:
        if self.states is None:
            return {}
        names = [launch_name(run_id, 1) for run_id, _ in BOTH]
        states = frozenset({self.states})
        return {name: [SlurmJob(number, name, states, "gpu1", None)] for number, name in enumerate(names, 7)}

    def cancel(self, job_ids: Any, *options: str) -> None:
        pass


class Head:
    """Ray, with the actors of both runs in the same state."""

    def __init__(self, state: Mapping[str, Any], lost: list[int]) -> None:
        self._state, self._lost = state, lost

    def ask(self, what: str, *_: Any, hosts: Mapping[str, Any] | None = None, **__: Any) -> Any:
        return {name: dict(self._state) for name in hosts or ()} if what == "look" else self._lost


def in_slurm(states: str | None, node: str = "IDLE") -> Callable[[Path], Executor]:
    def make(place: Path) -> SlurmExecutor:
        made = SlurmExecutor(place, lease_s=0.0, skew_s=0.0)
        made._commands = controller = Controller()
        controller.states, controller.node = states, node
        for record in (HOSTILE, GOOD):
            made._layout.remember(record)
            made._layout.begin(record.run_id, 1)
            write_atomically(made._notes.file(record.run_id, 1), {"job_id": 7, "at": time.time() - 600.0})
        return made

    return make


def in_ray(state: Mapping[str, Any], lost: list[int]) -> Callable[[Path], Executor]:
    def make(place: Path) -> RayExecutor:
        made = RayExecutor(place, "127.0.0.1:6379", fence_s=0.0)
        made._link = Head(state, lost)  # type: ignore[assignment]
        for record in (HOSTILE, GOOD):
            made._layout.remember(record)
            places = [Place(rank, f"x{rank}", "n", "127.0.0.1", 1) for rank in range(2)]
            write_atomically(
                made._layout.own / f"{record.run_id}.1.runner", {"places": [asdict(one) for one in places]}
            )
        return made

    return make


ENGINES = {
    "slurm-completed": in_slurm("COMPLETED"),
    "slurm-failed": in_slurm("FAILED"),
    "slurm-node-fail": in_slurm("NODE_FAIL", "DOWN"),
    "slurm-forgotten": in_slurm(None),
    "ray-ended": in_ray({"state": "alive", "running": False}, []),
    "ray-dead": in_ray({"state": "dead", "kind": "process", "text": "x"}, []),
    "ray-absent": in_ray({"state": "absent"}, []),
    "ray-lost": in_ray({"state": "dead", "kind": "node"}, [0, 1]),
}


@pytest.fixture(params=list(ENGINES))
def engine(request: Any, place: Path) -> tuple[Executor, Layout]:
    made = ENGINES[request.param](place / "data")
    return made, made._layout  # type: ignore[attr-defined]


def some_kinds(where: str, engine: str) -> list[str]:
    """A quarter of them: each kind in each place meets each engine in one of its states."""
    first = PLACES.index(where) + list(ENGINES).index(engine)
    return [kind for number, kind in enumerate(KINDS) if number % 4 == first % 4]


def good_files(layout: Layout) -> None:
    for record in (HOSTILE, GOOD):
        remove_tree(layout.job_dir(record.job_id))
        directory = layout.epoch_dir(record, 1)
        for name in ("claim", "logs", "node-x", "node-x1", "spool"):
            (directory / name).mkdir(parents=True)
        (directory / "claim" / "job").write_text("7")
        for name in ("node-x", "node-x1"):
            (directory / name / "ended").touch()
    write_atomically(layout.epoch_dir(GOOD, 1) / "exit.json", {"reason": "done", "step": 10})
    write_atomically(layout.epoch_dir(GOOD, 1) / "runner.json", {"pid": 1, "start_ticks": 1, "boot_id": "x"})


@in_turn("where", PLACES)
def test_each_place_with_each_thing_in_it(
    engine: tuple[Executor, Layout], where: str, request: Any, caplog: pytest.LogCaptureFixture
) -> None:
    executor, layout = engine
    for seed, kind in enumerate(some_kinds(where, request.node.callspec.params["engine"])):
        good_files(layout)
        hostile = Hostile(seed, depth=1_100, width=100)
        hostile.put(layout.job_dir(HOSTILE.job_id) / where.format(run=HOSTILE.run_id, epoch=1), kind)
        with hostile.at_work():
            for _ in range(2):
                hostile_run, good_run = executor.observe(BOTH)
                check(hostile_run, good_run, kind)
            for one in executor.spooled(HOSTILE.run_id, 1):
                assert (one.report is None) == (one.dropped > 0)
            assert len(list(executor.spooled(HOSTILE.run_id, 1))) <= MAX_REPORTS + 1
        assert "observing run" not in caplog.text, (kind, caplog.text)


def check(hostile: Fact, good: Fact, kind: str) -> None:
    assert (hostile.run_id, good.run_id) == (HOSTILE.run_id, GOOD.run_id)
    assert good.kind == "exited", kind
    assert good.exit is not None
    assert good.exit.reason in ("done", "runner_lost"), good.exit


def test_lists_and_removals_of_others_go_on(engine: tuple[Executor, Layout]) -> None:
    executor, layout = engine
    good_files(layout)
    hostile = Hostile(1, depth=1_100, width=100)
    for where in PLACES:
        hostile.put(layout.job_dir(HOSTILE.job_id) / where.format(run=HOSTILE.run_id, epoch=1))
    artifacts = layout.job_dir(GOOD.job_id) / "runs" / GOOD.run_id / "artifacts"
    artifacts.mkdir()
    (artifacts / "left").write_text("x")
    lists = {}
    for record in (HOSTILE, GOOD):
        options = {"globs": ["**"], "max_files": 100, "max_bytes": 1 << 30}
        wish = Preparation("artifacts", record.run_id, 1, "vision", record.job_id, options, 60.0, 1 << 30)
        lists[record.run_id] = prepared(executor, wish)  # type: ignore[arg-type]
    assert lists[HOSTILE.run_id].state in ("done", "failed")
    assert [file["path"] for file in lists[GOOD.run_id].detail["files"]] == ["left"]
    for record in (HOSTILE, GOOD):
        executor.discard("vision", [f"jobs/{record.job_id}/runs/{record.run_id}/artifacts"])
        assert not os.path.lexists(layout.job_dir(record.job_id) / "runs" / record.run_id / "artifacts" / "left")
    executor.reap_orphans(BOTH)
