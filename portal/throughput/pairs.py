"""Throughputs of jobs that share a GPU: estimated, until they are measured together."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import median

from portal.jobfile.resources import WHOLE_PERCENT
from portal.jobs.clusters import is_emulated
from portal.jobs.models import PairSample
from scheduling import domain
from scheduling.throughput.colocation import Pairs, pairs_of

#: The number of newest samples behind a measurement, and the most that are read in one round.
_NEWEST, _MOST_ROWS = 50, 20_000


@dataclass(frozen=True, slots=True)
class Beside:
    """What a number refers to: a workload's GPU share beside another's on one type of device."""

    workload: str
    share_percent: int
    other: str
    other_percent: int
    type: str

    @property
    def turned(self) -> Beside:
        return Beside(self.other, self.other_percent, self.workload, self.share_percent, self.type)

    @property
    def fills(self) -> bool:
        return self.share_percent + self.other_percent == WHOLE_PERCENT


@dataclass(frozen=True, slots=True)
class Measured:
    steps_per_s: float
    samples: int
    measured_at: datetime


def measured_pairs(
    workloads: Iterable[str], cluster_id: int, others: Iterable[str] | None = None
) -> dict[Beside, Measured]:
    """The median of the newest samples, in one query. `others`: the workloads beside, if not the same."""
    names = set(workloads)
    if not names:
        return {}
    beside = names if others is None else set(others)
    rows = PairSample.objects.filter(workload__in=names, beside_workload__in=beside, emulated=is_emulated(cluster_id))
    groups = defaultdict[Beside, list[PairSample]](list)
    for row in rows.order_by("-measured_at")[:_MOST_ROWS]:
        shares = row.share_percent, row.beside_share_percent
        group = groups[Beside(row.workload, shares[0], row.beside_workload, shares[1], row.accelerator_type)]
        if len(group) < _NEWEST:
            group.append(row)
    return {
        key: Measured(median(row.steps_per_s for row in group), sum(row.samples for row in group), group[0].measured_at)
        for key, group in groups.items()
    }


def pairs_for(jobs: Sequence[domain.Job], types: Iterable[str], cluster_id: int) -> Pairs:
    """The value of `Snapshot.pairs`. Measurements of two jobs that together fill a GPU replace the estimate, and are
    the fingerprint from which a workload's other pairs are estimated."""
    kinds = list(types)
    measured = _filling((job.workload for job in jobs), cluster_id)
    found = pairs_of(jobs, kinds, _fingerprints(jobs, measured))
    count = Counter(job.workload for job in jobs if job.min_gpus == 1)
    for key, number in measured.items():
        turned = measured.get(key.turned)
        there = count[key.workload] and count[key.other] > (key.workload == key.other)
        if turned is None or not there or key.type not in kinds:
            continue
        place, both = (key.workload, key.other, 1), (number.steps_per_s, turned.steps_per_s)
        if (key.other, key.workload, 1) in found:
            place, both = (key.other, key.workload, 1), both[::-1]
        found[place] = {**found.get(place, {}), key.type: both}
    return found


def _filling(workloads: Iterable[str], cluster_id: int) -> dict[Beside, Measured]:
    """Pairs that fill a GPU; halves last, so that they override other shares."""
    measured = [(key, found) for key, found in measured_pairs(workloads, cluster_id).items() if key.fills]
    return dict(sorted(measured, key=lambda one: -abs(one[0].share_percent - one[0].other_percent)))


def _fingerprints(
    jobs: Sequence[domain.Job], measured: Mapping[Beside, Measured]
) -> dict[str, dict[tuple[str, str], float]]:
    """By workload: the fraction of its throughput that it kept beside each other one."""
    alone: dict[tuple[str, str], float] = {}
    for job in jobs:
        for kind, curve in job.curves.items():
            if job.min_gpus == 1 and curve.source != "trial":
                alone[job.workload, kind] = curve.at(1) * domain.WHOLE / job.gpu_milli
    found = defaultdict[str, dict[tuple[str, str], float]](dict)
    for key, number in measured.items():
        if whole := alone.get((key.workload, key.type)):
            found[key.workload][key.type, key.other] = min(1.0, number.steps_per_s / whole)
    return dict(found)
