"""Jobs of others that wait in Slurm: ours say how many are before them, and no forecast promises what these get."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scheduling.executors.base import Taken
from scheduling.executors.slurm.cluster.waiting import (
    _COLUMNS,
    WaitingJob,
    ahead_of,
    behind_words,
    handed_on,
    of_others,
    parse_waiting,
)
from scheduling.executors.slurm.executor import SlurmExecutor
from scripts.slurm_cluster import SlurmCluster, until
from tests.executors.slurm import slurm_or_skipped
from tests.executors.test_sharing import make_request

MAIN = frozenset({"main"})


def line(number: int, **words: Any) -> str:
    given = {
        "jobid": number, "prioritylong": 10, "reason": "Resources", "partition": "main", "numnodes": 1,
        "tres-alloc": "cpu=1,mem=16M,node=1,billing=1,gres/gpu=2", "tres-per-node": "gres:gpu:2",
        "tres-per-job": "N/A", "tres-per-task": "N/A",
    } | words  # fmt: skip
    return "".join(f"{given[name]!s:>{size}}|" for name, size in _COLUMNS.items())


def test_those_are_read_that_wait_for_nodes() -> None:
    text = "\n".join(
        [
            line(1),
            line(2, reason="Priority", numnodes=3, partition="main,long"),
            line(3, reason="JobHeldUser"),
            line(4, reason="Dependency"),
            line(5, **{"tres-per-node": "N/A", "tres-alloc": "cpu=4,node=2"}),
            line(6, **{"tres-per-node": "N/A"}),
            "nonsense|x",
        ]
    )
    assert parse_waiting(text) == [
        WaitingJob(1, 10, MAIN, 2),
        WaitingJob(2, 10, frozenset({"main", "long"}), 6),
        WaitingJob(5, 10, MAIN, 0),
        WaitingJob(6, 10, MAIN, 2),
    ]


def test_before_ours_are_those_of_higher_priority_and_of_the_same_that_came_earlier() -> None:
    jobs = [WaitingJob(number, priority, MAIN, 1) for number, priority in ((1, 5), (2, 9), (3, 5), (4, 5), (5, 1))]
    jobs.append(WaitingJob(6, 99, frozenset({"other"}), 1))
    others = of_others(jobs, {3}, MAIN)
    assert ahead_of({3}, jobs, others) == 2
    assert ahead_of({7}, jobs, others) == 4  # Slurm was asked before it came
    assert (behind_words(0), behind_words(1)) == ("", ", behind 1 job of others")


@pytest.mark.parametrize(
    ("gpus", "ends"),
    [
        (0, {"a": [10.0, 30.0], "b": [20.0]}),
        (1, {"a": [30.0, None], "b": [20.0]}),
        (3, {"a": [30.0, None], "b": [None]}),
        (99, {"a": [None, None], "b": [None]}),
    ],
)
def test_what_comes_free_first_is_promised_to_nobody(gpus: int, ends: dict[str, list[float | None]]) -> None:
    taken = {
        "a": (Taken(2, until=10.0, blocks=2), Taken(1, until=30.0, blocks=1)),
        "b": (Taken(2, until=20.0, blocks=2),),
    }
    found = handed_on(taken, gpus)
    assert {name: [one.until for one in some] for name, some in found.items()} == ends
    assert sum(one.gpus for some in found.values() for one in some) == 5


@pytest.fixture
def alone() -> Iterator[SlurmCluster]:
    with slurm_or_skipped(nodes=1, gpus=2) as cluster:
        yield cluster


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_real_slurm_says_who_is_before_us(alone: SlurmCluster, tmp_path: Path) -> None:
    words = ("sbatch", "--parsable", "--uid=65534", "--gid=65534", "--gres=gpu:2", "--time=60", "--output=/dev/null",
             "--chdir=/", "--mem=64M", "--wrap=sleep 3600")  # fmt: skip
    theirs = [alone._ask(*words).strip() for _ in range(3)]
    until(lambda: len(alone._ask("squeue", "-h", "--states=RUNNING").splitlines()) == 1, "the first job")
    executor = SlurmExecutor(tmp_path / "shared", conf=str(alone.conf), emulated=True, look_s=0.0)
    executor.launch(make_request(placement={"gpu1": (0,)}))
    run = make_request()

    def waits() -> str:
        [fact] = executor.observe([(run.run_id, run.epoch)])
        return fact.waits

    until(lambda: waits().endswith("behind 2 jobs of others"), "what is said of it")
    [node] = executor.inventory()
    assert [(one.gpus, one.until) for one in node.taken] == [(2, None)]
    for number in theirs[1:]:
        alone._ask("scancel", number)
    again = SlurmExecutor(tmp_path / "shared", conf=str(alone.conf), emulated=True, look_s=0.0)
    [node] = again.inventory()
    [taken] = node.taken
    assert taken.until is not None
    assert taken.until > time.time()
    executor.kill(run.run_id, run.epoch)
