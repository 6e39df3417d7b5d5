"""Starts gangs that span node pools, for jobs that fit in no single pool.

Policies plan each pool for itself. Afterwards such a job gets its least gang from the remaining GPUs of all nodes that
it may use, in queue order. A gang in several pools is never resized.

A job that would fit in a single pool also starts this way when no pool has enough free GPUs now. It does not if it
would use pools for which a job ahead of it is pending, or under a time-sharing policy, as it would not return the GPUs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from scheduling.capacity.cluster_view import RoundView
from scheduling.capacity.node_pools import Pool, Pools
from scheduling.capacity.quota_headroom import QuotaHeadroom
from scheduling.domain import Gang, Job
from scheduling.engine.constraints.host_resources import requests_host_resources
from scheduling.engine.placement.choose_gpus import Board, Request

Gpus = tuple[int, ...]


def start_across_pools(
    pools: Pools,
    field: RoundView,
    queue: Sequence[Job],
    gpus: Mapping[str, Gpus],
    gangs: Mapping[str, Gang],
    *,
    only_wide: bool,
) -> tuple[dict[str, Gpus], dict[str, Gang]]:
    """(GPUs, gangs) of the jobs that start across pools, beside what was planned. `queue`: pending jobs in the policy's
    order; `only_wide`: only jobs that fit in no single pool even if it is empty."""
    waiting = [job.id for job in queue if job.id not in gpus]
    if not waiting or not field.multi_node:
        return {}, {}
    spanning = _Spanning(pools, field, gpus, gangs)
    for key in waiting:
        spanning.consider(key, only_wide=only_wide)
    return spanning.placed, spanning.given


class _Spanning:
    def __init__(self, pools: Pools, field: RoundView, gpus: Mapping[str, Gpus], gangs: Mapping[str, Gang]) -> None:
        self.pools, self.jobs = pools, {job.id: job for job in pools.snapshot.jobs}
        taken = {gpu for ids in gpus.values() for gpu in ids} | pools.snapshot.blocked_gpu_ids | pools.closed_gpus
        self.taken = taken | {gpu for job in pools.snapshot.jobs for gpu in job.gpu_ids}
        # For CPUs and memory of nodes: jobs that stay where they are, and jobs that get GPUs.
        self.holding = [
            replace(job, gpu_ids=gpus.get(job.id, job.gpu_ids))
            for job in pools.snapshot.jobs
            if requests_host_resources(job)
        ]
        self.free = dict.fromkeys(pools.every, 0)
        for gpu, pool in pools.of_gpu.items():
            self.free[pool] += gpu not in self.taken
        self.headroom = QuotaHeadroom(field)
        for job in field.candidates:
            if job.id in gangs:
                self.headroom.book(job, gangs[job.id])
        self.claimed = set[Pool]()  # pools of the jobs that were considered and still wait
        self.placed: dict[str, Gpus] = {}
        self.given: dict[str, Gang] = {}

    def consider(self, key: str, *, only_wide: bool) -> None:
        job = self.jobs[key]
        kinds = by_type(self.pools, job)
        for kind, mine in sorted(kinds.items()):
            gang, wide = Gang(kind, job.min_gpus), is_wide(self.pools, job, mine)
            free = [self.free[pool] for pool in mine]
            if max(free) >= job.min_gpus or sum(free) < job.min_gpus or self.headroom.over(job, gang) is not None:
                continue  # in one pool the policy could have started it; in all of them there are too few
            if (wide or not (only_wide or self.claimed.intersection(mine))) and self._start(job, gang, mine):
                return
        for kind, mine in kinds.items():
            if self.headroom.over(job, Gang(kind, job.min_gpus)) is None:
                self.claimed.update(mine)

    def _start(self, job: Job, gang: Gang, mine: Sequence[Pool]) -> bool:
        allowed = set(mine)
        nodes = [node for node in self.pools.snapshot.nodes if self.pools.of_node[node.name] in allowed]
        found = Board(nodes, self.taken, self.holding).place(Request(job, gang))
        if not found:
            return False
        self.placed[job.id], self.given[job.id] = found, gang
        self.holding += [replace(job, gpu_ids=found)] if requests_host_resources(job) else []
        self.taken |= set(found)
        for gpu in found:
            self.free[self.pools.of_gpu[gpu]] -= 1
        self.headroom.book(job, gang)
        return True


def by_type(pools: Pools, job: Job) -> dict[str, list[Pool]]:
    """Pools in which the job may start now, by type, for types with enough GPUs in total."""
    found: dict[str, list[Pool]] = {}
    for pool in pools.open_to(job):
        found.setdefault(pool.type, []).append(pool)
    return {
        kind: mine
        for kind, mine in found.items()
        if (not job.curves or (kind in job.curves and job.curves[kind].at(job.min_gpus) > 0))
        and job.min_gpus <= sum(pools.size[pool] for pool in mine)
    }


def is_wide(pools: Pools, job: Job, mine: Sequence[Pool]) -> bool:
    """Whether no single pool is large enough, even if it is empty."""
    return max(pools.size[pool] for pool in mine) < job.min_gpus
