"""How the reference's first-in-first-out policy assigns types to jobs (`compatible: true`).

Spec: heterogeneity-policies, "The reference implementation's own rules". With throughputs (`perf`) every job in order
gets the fastest type with room. Agnostic, jobs keep their types. The rest reproduces the reference's code, on which its
recorded results rest: a job goes to the last type by name that has a GPU left, whether or not it fits there, so types
are promised to more jobs than they have GPUs for. When a type is used up, a type drawn at random among those in which
the job fits is no longer used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from scheduling.capacity.cluster_view import queue_key
from scheduling.domain import Job
from scheduling.policies.time_shares.programs.groups import Fractions

#: The seed of its generator in its recorded results.
_SEED = 0


@dataclass
class Queue:
    """The jobs of `found`, in order, and the types they get."""

    found: Fractions
    given: dict[str, str] = field(default_factory=dict)  # job -> type

    def __post_init__(self) -> None:
        order = sorted(range(len(self.found.jobs)), key=lambda n: queue_key(self.found.jobs[n]))
        self.waiting: list[Job] = [self.found.jobs[n] for n in order]
        rows = self.found.throughput[self.found.group_of]
        self._speeds = {
            job.id: dict(zip(self.found.types, row.tolist(), strict=True))
            for job, row in zip(self.found.jobs, rows, strict=True)
        }
        self._free = {
            kind: int(gpus) for kind, gpus in zip(self.found.types, self.found.capacity.tolist(), strict=True)
        }

    def by_speed(self) -> None:
        """Until a job fits nowhere; the rest waits."""
        for job in self.waiting:
            fits = [kind for kind, gpus in self._free.items() if gpus >= job.min_gpus]
            if not fits:
                return
            fastest = max(fits, key=lambda kind: self._speeds[job.id][kind])
            if self._speeds[job.id][fastest] > 0:
                self._give(job, fastest)

    def blindly(self, before: Mapping[str, str], drawn: int) -> int:
        """`before`: the types assigned last, in that order; `drawn`: random numbers consumed so far. Returns the number
        consumed afterwards."""
        self._inherit(before)
        dice, offered = _Dice(drawn), sorted(kind for kind, gpus in self._free.items() if gpus > 0)
        for job in self.waiting:
            fits = [kind for kind in offered if self._free[kind] >= job.min_gpus]
            if not fits:
                break
            draw, last = dice.below(len(fits)), offered[-1]
            if self._speeds[job.id][last] > 0:
                self._give(job, last)
                if self._free[last] == 0:
                    offered.remove(fits[draw])
        return dice.drawn

    def _inherit(self, before: Mapping[str, str]) -> None:
        """Jobs keep their type. For each job that has ended the first of the queue may follow, if it fits beside the
        jobs that came before the one that ended."""
        present = {job.id: job for job in self.waiting}
        self.waiting = [job for job in self.waiting if job.id not in before]
        for key, kind in before.items():
            if key in present:
                self._give(present[key], kind)
            elif self.waiting and self._follows(self.waiting[0], kind):
                self._give(self.waiting.pop(0), kind)

    def _follows(self, job: Job, kind: str) -> bool:
        return job.min_gpus <= self._free[kind] and self._speeds[job.id][kind] > 0

    def _give(self, job: Job, kind: str) -> None:
        self.given[job.id] = kind
        self._free[kind] -= job.min_gpus

    def in_order(self) -> Sequence[tuple[str, str]]:
        """(job, type) of all jobs with a type, in queue order."""
        jobs = sorted(self.found.jobs, key=queue_key)
        return [(job.id, self.given[job.id]) for job in jobs if job.id in self.given]


class _Dice:
    """The numbers of the reference's generator from the `drawn`-th on."""

    def __init__(self, drawn: int) -> None:
        self._random, self.drawn = Random(_SEED), drawn  # noqa: S311
        for _ in range(drawn):
            self._random.getrandbits(1)

    def below(self, count: int) -> int:
        """Uniform: as many bits as `count` has, drawn again until the number is smaller."""
        while True:
            self.drawn += 1
            number = self._random.getrandbits(count.bit_length())
            if number < count:
                return number
