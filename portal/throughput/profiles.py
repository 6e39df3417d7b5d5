"""A job's throughput per accelerator type and count, combined from every source."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from statistics import median
from typing import Any

from django.db.models import F, Q, Window
from django.db.models.functions import RowNumber

from portal.jobfile.resources import WHOLE_PERCENT
from portal.jobs.clusters import is_emulated, speedup
from portal.jobs.models import Job, ThroughputSample
from scheduling.domain import Curve
from scheduling.throughput.curves import Number, Profile, catalogue, make_curve, merge, numbers_of, scale, trial_curve
from scheduling.throughput.estimates import estimate
from scheduling.throughput.published import published_by_slug

#: The number of newest sample rows behind a measurement.
_NEWEST = 50
#: Gangs up to this size are compared between types.
_LARGEST_GANG = 8


def workload_of(job: Job) -> str:
    """The key of measurements: the catalogue program, or the job itself for a command."""
    return job.model_type.name if job.model_type_id and job.model_type else own_workload(job)


def own_workload(job: Job) -> str:
    """The key of measurements that apply to this job alone."""
    return f"job:{job.pk}"


def policy_workload(job: Job) -> str:
    """The workload that policies see; jobs of one workload are equivalent: a catalogue program with its batch size, or
    a command."""
    name, program = workload_of(job), job.model_type
    return name if program is None or job.batch_size == program.default_batch_size else f"{name} ({job.batch_size})"


def of_share(workload: str, job: Job) -> str:
    """Throughput of a fractional job beside others says nothing about whole GPUs, and has a separate key."""
    return workload if job.gpu_share_percent == WHOLE_PERCENT else f"{workload}@{job.gpu_share_percent}%"


def workloads_of(job: Job) -> set[str]:
    """The keys of its measurements, including those on whole GPUs."""
    wholes = _whole_workloads(job)
    return wholes | {of_share(name, job) for name in wholes}


def _whole_workloads(job: Job) -> set[str]:
    return {workload_of(job), own_workload(job)} if is_emulated(job.cluster_id) else {workload_of(job)}


def measured_numbers(workloads: Iterable[str], cluster_id: int | None) -> dict[tuple[str, int, str], dict[int, Number]]:
    """(workload, batch, type) -> count -> measured number: one query.

    From real devices. On emulated ones also the speed of a job without known throughput, which runs there without a
    pace: that is its own trial and says nothing about other jobs.
    """
    names = list(workloads)
    if not names:
        return {}
    newest_first = Window(
        RowNumber(),
        partition_by=["workload", "batch_size", "accelerator_type", "count"],
        order_by=F("measured_at").desc(),
    )
    counting = Q(emulated=False)
    if is_emulated(cluster_id):
        counting |= Q(workload__startswith="job:", run__pace_steps_per_s=None)
    known = ThroughputSample.objects.filter(counting, workload__in=names)
    rows = known.annotate(rank=newest_first).filter(rank__lte=_NEWEST).order_by("-measured_at")
    groups: dict[tuple[str, int, str, int], list[ThroughputSample]] = defaultdict(list)
    for row in rows.iterator():
        group = groups[row.workload, row.batch_size, row.accelerator_type, row.count]
        group.append(row)
    numbers: dict[tuple[str, int, str], dict[int, Number]] = defaultdict(dict)
    for (workload, batch, kind, count), group in groups.items():
        value = median(r.steps_per_s for r in group)
        newest, samples = group[0].measured_at.timestamp(), sum(r.samples for r in group)
        numbers[workload, batch, kind][count] = Number(value, "measured", newest, samples)
    return numbers


def catalogue_curves(name: str, own: Mapping[str, Any]) -> dict[str, Curve]:
    """Published curves of a program; an administrator's entries for a type replace them."""
    curves = dict(catalogue().get(name) or published_by_slug().get(name) or {})
    for kind, entry in own.items():
        points = dict(enumerate(entry["steps_per_s"], 1))
        curves[kind] = make_curve(points, entry.get("source", "catalogue"), entry.get("spread_factor", 1.0))
    return curves


def profiles_of(
    job: Job, types: Mapping[str, int], measured: Mapping[tuple[str, int, str], Mapping[int, Number]]
) -> dict[str, Profile]:
    """The job's curve per accelerator type of the cluster (`types`: GPUs of each), with each number's source.

    If the job is known on other types only, an estimate is used until it is measured here. A type without any estimate
    gets a trial curve: the job runs there on its minimum until measured. A fractional job makes the same fraction of a
    whole GPU's steps.
    """
    published = catalogue_curves(job.model_type.name, job.model_type.curves) if job.model_type else {}
    user = {
        kind: make_curve(dict(enumerate(values, 1)), "user") for kind, values in job.spec.get("throughput", {}).items()
    }
    known = _known(job, {*types, *published, *user}, (user, published), measured)
    wanted = {k: n for k, n in types.items() if not job.accelerator_types or k in job.accelerator_types}
    missing = {kind: gpus for kind, gpus in wanted.items() if not known.get(kind)}
    guessed = _estimated(known, missing) if missing and not user else {}
    profiles = {}
    for kind, limit in wanted.items():
        sources = known.get(kind) or ([guessed[kind]] if kind in guessed else [])
        if sources:
            profiles[kind] = merge(sources, limit=limit, spread=user.get(kind) or published.get(kind))
        elif not published and not user:
            profiles[kind] = Profile(trial_curve(job.min_gpus), {})
    return profiles


def _known(
    job: Job,
    kinds: Iterable[str],
    curves: Iterable[Mapping[str, Curve]],
    measured: Mapping[tuple[str, int, str], Mapping[int, Number]],
) -> dict[str, list[dict[int, Number]]]:
    """By type, the numbers of each source; empty lists for types without any."""
    share = job.gpu_share_percent / WHOLE_PERCENT
    factor, wholes = speedup(job.cluster_id) * share, _whole_workloads(job)
    known = {}
    for kind in kinds:
        of_part = [measured.get((of_share(name, job), job.batch_size, kind), {}) for name in wholes]
        of_whole = [_times(measured.get((name, job.batch_size, kind), {}), share) for name in wholes]
        sources = [dict(numbers) for numbers in of_part] if any(of_part) else of_whole
        sources += [numbers_of(scale(own[kind], factor)) for own in curves if kind in own]
        known[kind] = [source for source in sources if source]
    return known


def _times(numbers: Mapping[int, Number], factor: float) -> dict[int, Number]:
    return {count: replace(number, steps_per_s=number.steps_per_s * factor) for count, number in numbers.items()}


def _estimated(
    known: Mapping[str, list[dict[int, Number]]], missing: Mapping[str, int]
) -> dict[str, dict[int, Number]]:
    """Numbers on the types of `missing`, estimated from those on the other types."""
    points = {
        kind: {count: number.steps_per_s for count, number in merge(sources, limit=_LARGEST_GANG).numbers.items()}
        for kind, sources in known.items()
        if sources
    }
    return estimate(points, missing)
