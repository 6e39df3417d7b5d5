"""How the reference's first in, first out hands types to jobs (`compatible: true`).

Spec: heterogeneity-policies, "The reference implementation's own rules". With throughputs (`perf`) every job in order
gets the fastest type with room. Agnostic, jobs keep what they were given and the rest is what its code does, on which
its recorded results rest: a job goes to the last type by name that has a GPU left, whether or not it fits there, so
types are promised to more jobs than they hold; and where a type is used up, one that is drawn at random, of those in
which the job fits, is no longer offered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from scheduling.capacity.cluster_view import queue_key
from scheduling.domain import Job
from scheduling.policies.time_shares.programs.groups import Fractions

#: Seeds its generator as its recorded results had it.
_SEED = 0


@dataclass
class Queue:
    """The jobs of `found`, in order, and what becomes of them."""

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
        """Until somebody fits nowhere; the rest waits."""
        for job in self.waiting:
            fits = [kind for kind, gpus in self._free.items() if gpus >= job.min_gpus]
            if not fits:
                return
            fastest = max(fits, key=lambda kind: self._speeds[job.id][kind])
            if self._speeds[job.id][fastest] > 0:
                self._give(job, fastest)

    def blindly(self, before: Mapping[str, str], drawn: int) -> int:
        """`before` is what was given last, in that order; `drawn` how many random numbers were used up to now: the
        answer is how many are then."""
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
        """Jobs keep their type. For each that has ended the first of the queue may follow, if it fits beside those who
        came before the one that ended."""
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
        """(job, type) of all that were given one, in the order of the queue."""
        jobs = sorted(self.found.jobs, key=queue_key)
        return [(job.id, self.given[job.id]) for job in jobs if job.id in self.given]


class _Dice:
    """The numbers of its generator from the `drawn`-th on."""

    def __init__(self, drawn: int) -> None:
        self._random, self.drawn = Random(_SEED), drawn  # noqa: S311
        for _ in range(drawn):
            self._random.getrandbits(1)

    def below(self, count: int) -> int:
        """Evenly, from so many bits as `count` has, drawn again until they are less."""
        while True:
            self.drawn += 1
            number = self._random.getrandbits(count.bit_length())
            if number < count:
                return number
