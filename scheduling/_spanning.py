"""Starts of gangs that fit on the nodes that a job may use, but in none of their pools alone.

Policies plan each pool for itself. So once they have, such a job gets its least gang of what is left, in the order of
the queue, on whatever nodes it may use. It keeps that to its end: a gang in several pools is never resized.
"""

from __future__ import annotations

from collections.abc import Mapping

from scheduling.domain import Gang, Job
from scheduling.placement import Board, Request
from scheduling.policies._limits import Rooms
from scheduling.policies._view import View
from scheduling.pools import Pools

Gpus = tuple[int, ...]


def start_across(
    pools: Pools, field: View, gpus: Mapping[str, Gpus], gangs: Mapping[str, Gang]
) -> tuple[dict[str, Gpus], dict[str, Gang]]:
    """(GPUs, gangs) of those that start so, beside what was planned."""
    waiting = {job.id for job in field.queued if job.id not in gpus}
    if not waiting or not field.multi_node:
        return {}, {}
    jobs = {job.id: job for job in pools.snapshot.jobs if job.id in waiting}
    wide = [(jobs[job.id], kinds) for job in field.queued if job.id in jobs and (kinds := _kinds(pools, jobs[job.id]))]
    if not wide:
        return {}, {}
    taken = {gpu for ids in gpus.values() for gpu in ids} | pools.snapshot.blocked_gpu_ids
    taken |= {gpu for job in pools.snapshot.jobs for gpu in job.gpu_ids}
    rooms = Rooms(field)
    for job in field.taking_part:
        if job.id in gangs:
            rooms.book(job, gangs[job.id])
    placed: dict[str, Gpus] = {}
    given: dict[str, Gang] = {}
    for job, kinds in wide:
        for kind in kinds:
            gang = Gang(kind, job.min_gpus)
            found = _place(pools, job, gang, taken) if rooms.over(job, gang) is None else None
            if found:
                placed[job.id], given[job.id] = found, gang
                taken |= set(found)
                rooms.book(job, gang)
                break
    return placed, given


def _kinds(pools: Pools, job: Job) -> list[str]:
    """Types of which no pool that it may use is large enough alone, and all together are."""
    sizes: dict[str, list[int]] = {}
    for pool in pools.open_to(job):
        sizes.setdefault(pool.type, []).append(pools.size[pool])
    runs = [kind for kind in sizes if not job.curves or (kind in job.curves and job.curves[kind].at(job.min_gpus) > 0)]
    return sorted(kind for kind in runs if max(sizes[kind]) < job.min_gpus <= sum(sizes[kind]))


def _place(pools: Pools, job: Job, gang: Gang, taken: set[int]) -> Gpus | None:
    mine = set(pools.open_to(job))
    nodes = [node for node in pools.snapshot.nodes if node.type == gang.type and pools.of_node[node.name] in mine]
    return Board(nodes, taken).place(Request(job, gang))
