"""Final check of how many nodes a job may span, for policies that name accelerators themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from scheduling.capacity.cluster_view import RoundView
from scheduling.domain import Gang, Job, Reason, Snapshot
from scheduling.domain.reason_codes import ReasonCode
from scheduling.engine.state import Placement


def keep_to_nodes(snapshot: Snapshot, field: RoundView, placement: Placement) -> tuple[Placement, Reason | None]:
    """Drop starts that break their jobs' node bounds. A reason if a running job would have to break them: then no job
    moves."""
    bounded = [job for job in field.candidates if job.on_nodes is not None and placement.gpus.get(job.id)]
    if not bounded:
        return placement, None
    node_of = {gpu: node.name for node in snapshot.nodes for gpu in node.gpu_ids}
    broken = [job for job in bounded if _breaks(job, placement.gpus[job.id], node_of)]
    stuck = next((job for job in broken if job.gpu_ids), None)
    if stuck is not None and stuck.on_nodes is not None:
        text = f"This round's plan would have exceeded what {stuck.on_nodes.where} allows, so nothing was changed."
        return placement, Reason(ReasonCode.LIMITS, text)
    starts = {job.id for job in broken}
    gpus: Mapping[str, tuple[int, ...]] = {key: ids for key, ids in placement.gpus.items() if key not in starts}
    gangs: Mapping[str, Gang] = {key: gang for key, gang in placement.gangs.items() if key not in starts}
    return replace(placement, gpus=gpus, gangs=gangs), None


def _breaks(job: Job, gpus: tuple[int, ...], node_of: Mapping[int, str]) -> bool:
    """GPUs that the job holds already never break its bounds."""
    counts = Counter(node_of[gpu] for gpu in gpus if gpu in node_of)
    return gpus != job.gpu_ids and job.on_nodes is not None and not job.on_nodes.allow(counts.values())
