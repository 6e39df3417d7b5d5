"""What the commands of Slurm 24.11.5 print, recorded."""

from __future__ import annotations

import pytest

from scheduling.executors.slurm.cluster.inventory import parse_nodes
from scheduling.executors.slurm.commands import SlurmJob
from scheduling.executors.slurm.seeing import waits_in_words
from tests.executors.test_slurm_words import RECORDED, Printed

QUEUE = (RECORDED / "queue-24.11.txt").read_text()


def job_of(run: str) -> SlurmJob:
    [job] = Printed(QUEUE).jobs("evenkeel-")[f"evenkeel-{run}-1"]
    return job


@pytest.mark.parametrize(
    ("run", "states", "over", "words"),
    [
        ("f", {"FAILED"}, True, None),
        ("b", {"PENDING"}, False, "waits in Slurm (Resources)"),
        ("c", {"PENDING"}, False, "held in Slurm (JobHeldUser)"),
        ("abc", {"SUSPENDED"}, False, "suspended in Slurm"),
        ("d", {"COMPLETING"}, False, ""),
        ("g", {"PENDING"}, False, "held in Slurm (job requeued in held state)"),
        ("h", {"RUNNING"}, False, ""),
        ("e", {"CANCELLED"}, True, None),
    ],
)
def test_its_queue(run: str, states: set[str], over: bool, words: str | None) -> None:
    job = job_of(run)
    assert (set(job.states), job.over) == (states, over)
    if words is not None:
        assert waits_in_words([job]) == words


def test_times_of_its_queue() -> None:
    job = job_of("abc")
    assert (job.started_at, job.ended_at, job.limit_s, job.nodes) == (1795861139, 1795861259, 120, "gpu[1-2]")
    assert (job_of("c").started_at, job_of("c").limit_s) == (None, 86_400)


def test_its_nodes() -> None:
    first, second = parse_nodes((RECORDED / "nodes-24.11.txt").read_text(), "main")
    assert (first.info.name, first.address, first.gpu_types) == ("gpu1", "127.0.0.1", ("a100",) * 2)
    assert (first.info.cpus, first.info.memory_mib, first.info.reachable) == (16, 64_000, True)
    assert first.info.drain_reason == "disk full [ticket 12]"
    assert (second.info.reachable, second.info.drain_reason, second.state) == (False, None, "DOWN: fan broken")


def test_its_accounting() -> None:
    [job] = Printed((RECORDED / "sacct-24.11.json").read_text()).past_jobs("evenkeel-f-1") or []
    assert (job.job_id, set(job.states), job.ended_at, job.nodes) == (1, {"FAILED"}, 1795861138, "gpu1")
