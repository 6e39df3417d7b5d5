"""Jobs that are not stored yet, as a snapshot contains them: drafts and expected arrivals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from portal.accounting import quota_usage
from portal.jobs.models import Cluster, Job
from portal.snapshot.dependencies import Waits
from portal.snapshot.rows import job_row, partitions_of
from portal.snapshot.site_limits import Bound, SiteLimits
from portal.throughput.job_profiles import job_profiles
from portal.throughput.pairs import pairs_for
from scheduling import domain
from scheduling.lifecycle import State


def arrivals_of(cluster: Cluster, nodes: Iterable[domain.Node], most: int) -> list[domain.Job]:
    """The newest jobs, in any state, as if they held nothing and had no dependencies."""
    rows = Job.objects.filter(cluster=cluster, run__isnull=False).order_by("-number")
    jobs = list(rows.select_related("run").prefetch_related("project", "model_type", "qos", "array")[:most])
    known = job_profiles(jobs, Counter(node.type for node in nodes for _ in node.gpu_ids)) if jobs else {}
    _, name_of = partitions_of(cluster, nodes)
    return [job_row(job, known[job.pk], (), {}, (), {}, Waits(), name_of) for job in jobs]


def newcomers_of(
    jobs: Sequence[Job], cluster: Cluster, base: domain.Snapshot, waits: Waits, now: datetime, *, packs: bool
) -> tuple[tuple[domain.Job, ...], domain.Snapshot]:
    """Unstored jobs as they would enter the queue of `base`, and `base` with what they refer to.

    They are equal: the throughput of the first one applies to all. `packs`: the policy shares GPUs.
    """
    site, types = SiteLimits(cluster), _types(base)
    limits, bound = site.added_to(*quota_usage.limits_of(jobs, cluster, now), jobs)
    found = _rows(jobs, cluster, site, base, bound, waits)
    pairs = pairs_for([job for job in (*base.jobs, *found) if not job.held], types, cluster.pk) if packs else {}
    asked = {**base.constraints, **site.constraints(jobs)}
    return found, replace(base, limits={**base.limits, **limits}, constraints=asked, pairs=pairs)


def newcomer_of(job: Job, cluster: Cluster, base: domain.Snapshot) -> tuple[domain.Job, domain.Snapshot]:
    """The same of one job, whatever it waits for and whatever limits it has."""
    site = SiteLimits(cluster)
    [found] = _rows([job], cluster, site, base, {}, Waits())
    return found, replace(base, constraints={**base.constraints, **site.constraints([job])})


def _types(base: domain.Snapshot) -> Counter[str]:
    return Counter(node.type for node in base.nodes for _ in node.gpu_ids)


def _rows(
    jobs: Sequence[Job], cluster: Cluster, site: SiteLimits, base: domain.Snapshot, bound: Bound, waits: Waits
) -> tuple[domain.Job, ...]:
    known = job_profiles(list(jobs[:1]), _types(base))[jobs[0].pk]
    _, name_of = partitions_of(cluster, base.nodes)
    found = tuple(
        replace(
            job_row(job, known, (), {}, bound.get(job.pk, ()), {}, waits, name_of),
            state=State.WAITING_FOR_INITIAL_RESOURCE,
            submitted_at=base.now,
        )
        for job in jobs
    )
    return site.bounded(found, jobs, base.nodes)
