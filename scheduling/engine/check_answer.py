"""Checks that a policy's answer can be carried out. An invalid answer is treated like a failed solver."""

from __future__ import annotations

from collections.abc import Mapping

from scheduling.capacity.cluster_view import view
from scheduling.capacity.memo import cluster_index
from scheduling.capacity.quota_headroom import exceeds_quota
from scheduling.domain import Allocation, Gang, Snapshot
from scheduling.domain.gpu_parts import overfull
from scheduling.errors import SolverError


def check_answer(snapshot: Snapshot, allocation: Allocation) -> Mapping[str, object]:
    """Return the ids of jobs that get GPUs. Raises SolverError."""
    if allocation.counts is not None:
        return allocation.counts
    if allocation.placements is None:
        raise SolverError("an answer in fractions of time from a policy that does not say so")
    field = view(snapshot)
    part, types = {job.id for job in field.candidates}, cluster_index(snapshot.nodes).type_of
    gpus = [gpu for key, ids in allocation.placements.items() if key in part for gpu in ids]
    twice = any(len(ids) != len(set(ids)) for ids in allocation.placements.values())
    over = overfull(snapshot, field.pinned, field.candidates, allocation.placements)
    if twice or over is not None or not types.keys() >= set(gpus):
        raise SolverError("a placement on accelerators that are not free")
    gangs = {key: Gang(types[ids[0]], len(ids)) for key, ids in allocation.placements.items() if ids}
    if field.limits and exceeds_quota(field, gangs):
        raise SolverError("a placement beyond the limits of its jobs")
    return {key: ids for key, ids in allocation.placements.items() if ids}
