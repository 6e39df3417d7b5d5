"""Step 7: turns counts of GPUs into accelerators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import chain

from scheduling.capacity.cluster_view import RoundView
from scheduling.capacity.memo import cluster_index
from scheduling.domain import Allocation, Gang, Snapshot
from scheduling.engine.placement.choose_gpus import Board, Request, lay_out
from scheduling.engine.placement.consolidation import consolidate_gangs
from scheduling.engine.state import Placement, RoundState


def place(state: RoundState) -> RoundState:
    consolidates = state.policy.capabilities.consolidates
    return replace(state, placement=_lay_out(state.snapshot, state.view, state.allocation, consolidates=consolidates))


def _lay_out(snapshot: Snapshot, field: RoundView, allocation: Allocation, *, consolidates: bool) -> Placement:
    """`consolidates`: running jobs may be moved to consolidate gangs."""
    if allocation.placements is not None:
        return _given(snapshot, field, allocation.placements)
    counts = allocation.counts or {}
    requests, kept, placed = list[Request](), list[Request](), dict[str, tuple[int, ...]]()
    for job in field.candidates:
        gang = counts.get(job.id)
        if gang is None or gang.count <= 0:
            continue
        if gang is job.gang and gang.count == len(job.gpu_ids) and not consolidates:  # most policies return counts
            placed[job.id] = job.gpu_ids
            continue
        same = job.gang is not None and job.gang.type == gang.type
        if same and gang.count == len(job.gpu_ids):
            placed[job.id] = job.gpu_ids
            if consolidates:
                kept.append(Request(job, gang, job.gpu_ids))
        else:
            span = field.spans(job).get(gang.type)
            requests.append(Request(job, gang, job.gpu_ids if same else (), span.low if span else gang.count))
    gangs = {key: counts[key] for key in placed}
    if requests or consolidates:
        held = (job.gpu_ids for job in field.pinned), placed.values(), (request.held for request in requests)
        taken = snapshot.blocked_gpu_ids.union(*chain(*held))
        staying = chain(field.pinned, (job for job in field.candidates if job.id in counts))
        board = Board(snapshot.nodes, taken, staying)
        gpus = lay_out(board, requests, multi_node=field.multi_node)
        placed |= gpus
        if consolidates:
            consolidate_gangs(board, [*kept, *requests], placed)
        for key, ids in gpus.items():
            gang = counts[key]
            gangs[key] = gang if gang.count == len(ids) else replace(gang, count=len(ids))
    return Placement(placed, gangs)


def _given(snapshot: Snapshot, field: RoundView, placements: Mapping[str, tuple[int, ...]]) -> Placement:
    """A packing policy names accelerators itself; it cannot change pinned jobs."""
    types, part = cluster_index(snapshot.nodes).type_of, {job.id for job in field.candidates}
    gpus = {key: tuple(ids) for key, ids in placements.items() if key in part and ids}
    return Placement(gpus, {key: Gang(types[ids[0]], len(ids)) for key, ids in gpus.items()})
