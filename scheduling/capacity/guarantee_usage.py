"""Which jobs use the guarantees of projects, by level of the project tree.

A job runs *within* a guarantee of its project, or of one above it, as long as the jobs before it, by priority and then
by how long they have held GPUs, leave room for it there. A job that runs within no guarantee is a borrower.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection

from scheduling.capacity.cluster_view import present_gang
from scheduling.capacity.memo import cluster_index
from scheduling.domain import WHOLE, Gang, Guarantee, Job, Snapshot, plain_type


class GuaranteeUsage:
    def __init__(self, snapshot: Snapshot) -> None:
        self._parent = {key: entity.parent for key, entity in snapshot.entities.items()}
        self._chains: dict[str, tuple[str, ...]] = {}
        self.rows: dict[str, list[Guarantee]] = defaultdict(list)
        for row in snapshot.guarantees:
            self.rows[row.project].append(row)
        self.used = Counter[Guarantee]()  # thousandths of GPUs
        #: Job -> levels at which it runs within a guarantee.
        self.within: dict[str, set[str]] = defaultdict(set)
        types = cluster_index(snapshot.nodes).every_type
        found = [(job, gang) for job in snapshot.jobs if (gang := present_gang(job, types)) and job.gpu_ids]
        self.holders = sorted(found, key=lambda one: _standing(snapshot, one[0]))
        self._count()

    def _count(self) -> None:
        filled = Counter[Guarantee]()
        for job, gang in self.holders:
            for level in self.chain(job.project):
                for row in self.covering(level, gang):
                    self.used[row] += _milli(job, gang)
                    if filled[row] + _milli(job, gang) <= WHOLE * row.gpus:
                        filled[row] += _milli(job, gang)
                        self.within[job.id].add(level)

    def chain(self, project: str) -> tuple[str, ...]:
        """The project's ancestors and the project itself, outermost first."""
        known = self._chains.get(project)
        if known is None:
            found: list[str] = []
            level: str | None = project
            while level is not None and level not in found:
                found.append(level)
                level = self._parent.get(level)
            known = self._chains[project] = tuple(reversed(found))
        return known

    def covering(self, level: str, gang: Gang) -> list[Guarantee]:
        return [row for row in self.rows.get(level, ()) if row.type in (None, plain_type(gang.type))]

    def claim(self, job: Job, gang: Gang, others: Collection[str] = ()) -> Guarantee | None:
        """The guarantee under which the job may reclaim the gang from a job whose levels are `others`.

        The outermost guaranteed level that the two do not share counts: once that level has all its guaranteed GPUs,
        inner levels have no claim outside it.
        """
        for level in self.chain(job.project):
            rows = self.covering(level, gang) if level not in others else []
            if rows:
                return next((row for row in rows if self._fits(row, job, gang)), None)
        return None

    def has_room(self, job: Job, gang: Gang) -> bool:
        """Whether a guarantee of any of the job's levels has room for the gang."""
        rows = (row for level in self.chain(job.project) for row in self.covering(level, gang))
        return any(self._fits(row, job, gang) for row in rows)

    def _fits(self, row: Guarantee, job: Job, gang: Gang) -> bool:
        return self.used[row] + _milli(job, gang) <= WHOLE * row.gpus

    def rows_of(self, job: Job) -> list[Guarantee]:
        return [row for level in self.chain(job.project) for row in self.rows.get(level, ())]

    def is_safe(self, job: Job, from_job: Job) -> bool:
        """Whether the job runs within a guarantee of a level that the other job does not belong to."""
        return bool(self.within.get(job.id, set()).difference(self.chain(from_job.project)))

    def book(self, job: Job, gang: Gang, sign: int = 1) -> None:
        for level in self.chain(job.project):
            for row in self.covering(level, gang):
                self.used[row] += sign * _milli(job, gang)

    def outermost(self) -> list[Guarantee]:
        """Guarantees of levels that are inside no other guaranteed level."""
        return [
            row
            for level, rows in self.rows.items()
            if not any(above in self.rows for above in self.chain(level)[:-1])
            for row in rows
        ]


def _milli(job: Job, gang: Gang) -> int:
    return gang.count * job.gpu_milli


def urgency(snapshot: Snapshot, job: Job) -> tuple[int, int]:
    level = snapshot.qos.get(job.qos)
    return (level.priority if level else 0, job.priority)


def _standing(snapshot: Snapshot, job: Job) -> tuple[object, ...]:
    service, priority = urgency(snapshot, job)
    return (-service, -priority, math.inf if job.held_since is None else job.held_since, job.number, job.id)
