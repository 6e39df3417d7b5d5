"""Fractional GPUs: a job file's request of each GPU, as columns of its job."""

from __future__ import annotations

from typing import TypedDict

from django.conf import settings
from django.db.models import Min

from portal.cluster.partitions import gpus_in
from portal.core.problems import FieldProblem, Problems
from portal.jobfile.resources import WHOLE_PERCENT, Gpus
from portal.jobs.models import Partition


class Parts(TypedDict):
    gpu_share_percent: int
    gpu_memory_mib: int


def parts_of(gpus: Gpus, cluster_id: int, partition: Partition | None) -> Parts:
    """Raises Problems if no allowed GPU type has enough memory on all nodes: rounds place by type.

    A fractional job without `gpu_memory` gets its share of the smallest allowed GPU, so that all jobs that share one
    fit. Nothing is requested if the memories are unknown.
    """
    share = gpus.share_percent
    if share == WHOLE_PERCENT and gpus.memory is None:
        return {"gpu_share_percent": share, "gpu_memory_mib": 0}
    there = gpus_in(cluster_id, partition, lost=True).filter(memory_mib__gt=0)  # lost nodes may come back
    if gpus.types:
        there = there.filter(node__accelerator_type__in=gpus.types)
    _check_step(share, gpus, cluster_id, partition)
    sizes = sorted(
        there.values_list("node__accelerator_type").annotate(least=Min("memory_mib")).values_list("least", flat=True)
    )
    if gpus.memory is not None and sizes and gpus.memory > sizes[-1]:
        text = f"no type of GPU that the job may use has {gpus.memory:,} MiB: the largest has {sizes[-1]:,} MiB"
        raise Problems([FieldProblem("gpus.memory", text, "too_large")])
    own = sizes[0] * share // WHOLE_PERCENT if sizes else 0
    return {"gpu_share_percent": share, "gpu_memory_mib": own if gpus.memory is None else gpus.memory}


def _check_step(share: int, gpus: Gpus, cluster_id: int, partition: Partition | None) -> None:
    """A type may only be divided in larger steps: the share must fit on every type that the job may get."""
    steps = settings.EVENKEEL_SHARE_STEPS
    there = gpus_in(cluster_id, partition, lost=True).values_list("node__accelerator_type", flat=True)
    for kind in sorted(set(gpus.types) or set(there)):
        step = steps.get(kind, steps[""])
        if share % step:
            below, above = share // step * step, (share // step + 1) * step
            near = f"{below / 100:g} or {above / 100:g}" if below else f"{above / 100:g}"
            text = f"{kind} is divided in steps of {step / 100:g}: give {near}"
            text += "" if gpus.types else ", or name other types"
            raise Problems([FieldProblem("gpus.share", text, "step")])
