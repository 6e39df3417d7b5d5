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
from portal.snapshot.site_limits import SiteLimits
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
    types = Counter(node.type for node in base.nodes for _ in node.gpu_ids)
    known = job_profiles(list(jobs[:1]), types)[jobs[0].pk]
    site = SiteLimits(cluster)
    limits, bound = site.added_to(*quota_usage.limits_of(jobs, cluster, now), jobs)
    _, name_of = partitions_of(cluster, base.nodes)
    found = tuple(
        replace(
            job_row(job, known, (), {}, bound.get(job.pk, ()), {}, waits, name_of),
            state=State.WAITING_FOR_INITIAL_RESOURCE,
            submitted_at=base.now,
        )
        for job in jobs
    )
    found = site.bounded(found, jobs, base.nodes)
    pairs = pairs_for([job for job in (*base.jobs, *found) if not job.held], types, cluster.pk) if packs else {}
    asked = {**base.constraints, **site.constraints(jobs)}
    return found, replace(base, limits={**base.limits, **limits}, constraints=asked, pairs=pairs)
