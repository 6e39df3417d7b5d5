"""Parts of GPUs: what a job file asks of each GPU, as columns of its job."""

from __future__ import annotations

from typing import TypedDict

from portal.jobs.models import Partition
from portal.jobs.schema import WHOLE_PERCENT, FieldProblem, Gpus, Problems
from portal.jobs.services.partitions import gpus_in


class Parts(TypedDict):
    gpu_share_percent: int
    gpu_memory_mib: int


def parts_of(gpus: Gpus, partition: Partition | None) -> Parts:
    """Raises Problems where no GPU that it may use has so much memory.

    A part without a memory of its own takes its share of the smallest GPU that it may be given, so that whoever
    shares a GPU never takes more of its memory than there is. Nothing is claimed where memories are not known.
    """
    there = gpus_in(partition).filter(memory_mib__gt=0)
    if gpus.types:
        there = there.filter(node__accelerator_type__in=gpus.types)
    sizes = sorted(set(there.values_list("memory_mib", flat=True)))
    if gpus.memory is not None and sizes and gpus.memory > sizes[-1]:
        text = f"no GPU that the job may use has {gpus.memory} MiB: the largest has {sizes[-1]}"
        raise Problems([FieldProblem("gpus.memory", text, "too_large")])
    share = gpus.share_percent
    own = sizes[0] * share // 100 if sizes and share < WHOLE_PERCENT else 0
    return {"gpu_share_percent": share, "gpu_memory_mib": own if gpus.memory is None else gpus.memory}
