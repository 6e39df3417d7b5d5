"""Other users' jobs that wait in Slurm for nodes like ours: they get the first free ones, and ours wait behind them.

The simplest safe rule: as many GPUs as eligible other jobs wait for (`Resources`, `Priority`) go to them as they become
free, in that order, for an unknown time. So no forecast includes these.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from scheduling.executors.base import Taken
from scheduling.executors.slurm.cluster import others
from scheduling.executors.slurm.cluster.inventory import SlurmNode
from scheduling.executors.slurm.cluster.others import MAX_LINES, asked_gpus
from scheduling.executors.slurm.commands import Commands

_COLUMNS = {
    "jobid": 20, "prioritylong": 20, "reason": 40, "partition": 200, "numnodes": 12, "tres-alloc": 300,
    "tres-per-node": 100, "tres-per-job": 100, "tres-per-task": 100,
}  # fmt: skip
FORMAT = ",".join(f"{name}:.{size}|" for name, size in _COLUMNS.items())
COMMAND = ("squeue", "--noheader", "--local", "--states=PENDING", f"--Format={FORMAT}")
#: A long queue is read rarely.
WAITING_S = 30.0
#: Other jobs wait for something else than nodes, and take none meanwhile.
_ELIGIBLE = frozenset({"Resources", "Priority", "None"})


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """`gpus`: on all its nodes together."""

    job_id: int
    priority: int
    partitions: frozenset[str]
    gpus: int


def parse_waiting(text: str) -> list[WaitingJob]:
    """Those that wait for nodes; unreadable lines are skipped."""
    return [job for line in islice(text.splitlines(), MAX_LINES) if (job := _job(line)) is not None]


def _job(line: str) -> WaitingJob | None:
    values = line.split("|")
    if len(values) != len(_COLUMNS) + 1:
        return None
    given = {name: value.strip() for name, value in zip(_COLUMNS, values, strict=False)}
    numbers = [given[name] for name in ("jobid", "prioritylong", "numnodes")]
    if given["reason"] not in _ELIGIBLE or not all(word.isascii() and word.isdecimal() for word in numbers):
        return None
    job_id, priority, nodes = (int(word) for word in numbers)
    gpus = asked_gpus(given, max(1, nodes))
    return WaitingJob(job_id, priority, frozenset(given["partition"].split(",")), gpus)


def of_others(jobs: Iterable[WaitingJob], ours: Collection[int], partitions: Collection[str]) -> list[WaitingJob]:
    """Those that may get nodes of these partitions."""
    return [job for job in jobs if job.job_id not in ours and not job.partitions.isdisjoint(partitions)]


def ahead_of(job_ids: Collection[int], jobs: Sequence[WaitingJob], theirs: Sequence[WaitingJob]) -> int:
    """How many other jobs precede ours, by priority, then by id; all, if ours is not in `jobs` yet."""
    mine = next((job for job in jobs if job.job_id in job_ids), None)
    if mine is None:
        return len(theirs)
    return sum((-job.priority, job.job_id) < (-mine.priority, mine.job_id) for job in theirs)


def handed_on(taken: Mapping[str, Sequence[Taken]], gpus: int) -> dict[str, tuple[Taken, ...]]:
    """Use by others, if `gpus` of it go to other waiting jobs."""
    found = {name: list(some) for name, some in taken.items()}
    order = sorted(
        ((math.inf if one.until is None else one.until, name, at) for name, some in taken.items()
         for at, one in enumerate(some) if one.blocks or one.gpus)
    )  # fmt: skip
    for _, name, at in order:
        if gpus <= 0:
            break
        one = found[name][at]
        gpus -= max(one.blocks, one.gpus)
        found[name][at] = replace(one, until=None)
    # in order of their ends
    return {name: tuple(sorted(some, key=lambda one: math.inf if one.until is None else one.until))
            for name, some in found.items()}  # fmt: skip


def behind_words(count: int) -> str:
    return f", behind {count} job{'' if count == 1 else 's'} of others" if count else ""


class Watch(others.Watch):
    def __init__(self, commands: Commands, file: Path | None = None) -> None:
        super().__init__(commands, file)
        self._queue: tuple[float, list[WaitingJob]] = (-math.inf, [])

    def queue(self) -> list[WaitingJob]:
        """All jobs that wait in Slurm for nodes, including ours."""
        if time.monotonic() - self._queue[0] >= WAITING_S:
            text = self._commands.recalling_settings().run(*COMMAND)
            self._queue = time.monotonic(), parse_waiting(text)
        return self._queue[1]

    def behind(self, job_ids: Collection[int], ours: Collection[int], nodes: Iterable[SlurmNode]) -> str:
        """For a launch that waits for nodes: how many other jobs precede it, in words."""
        jobs = self.queue()
        return behind_words(ahead_of(job_ids, jobs, of_others(jobs, ours, _partitions(nodes))))

    def _handed_on(
        self, taken: Mapping[str, tuple[Taken, ...]], nodes: Mapping[str, SlurmNode], ours: Collection[int]
    ) -> Mapping[str, tuple[Taken, ...]]:
        theirs = of_others(self.queue(), ours, _partitions(nodes.values()))
        return handed_on(taken, sum(job.gpus for job in theirs))


def _partitions(nodes: Iterable[SlurmNode]) -> set[str]:
    return {name for node in nodes for name in node.partitions}
