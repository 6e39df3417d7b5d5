"""Devices shared by fractional jobs: how much of each is taken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from scheduling.domain.job import WHOLE, Job
from scheduling.domain.snapshot import Snapshot


def taken(jobs: Iterable[Job], gpus: Mapping[str, tuple[int, ...]] | None = None) -> Counter[int]:
    """Thousandths taken of each accelerator that the jobs hold, or of `gpus` by job."""
    found: Counter[int] = Counter()
    for job in jobs:
        for gpu in job.gpu_ids if gpus is None else gpus.get(job.id, ()):
            found[gpu] += job.gpu_milli
    return found


def overfull(
    snapshot: Snapshot, staying: Iterable[Job], part: Iterable[Job], gpus: Mapping[str, tuple[int, ...]]
) -> int | None:
    """An accelerator that would be assigned beyond its capacity, beside jobs that stay where they are."""
    shares = taken(part, gpus)
    kept = taken(staying) + Counter(dict.fromkeys(snapshot.blocked_gpu_ids, WHOLE))
    return next((gpu for gpu, share in shares.items() if share + kept[gpu] > WHOLE), None)
